package pawl

var NewClaim = newClaim
