package engine

// What the tests outside of the package say in the words of explanations.
var (
	RateText = rateText
	Clock    = clock
)
