"""The messages of the API as protobuf has them, generated from api/pawl/v1: not a stable interface of this package."""
