// The compiler wants a file of assembly where functions have no body.
