// Package chart draws counts, durations and proportions over time as SVG: charts with markers, sparklines, histograms and bars.
//
// A drawing is data for the template of the same name. Positions are percentages of the width and pixels of the height,
// so that a drawing needs no script and text is not stretched. The package knows the statistics that the API returns,
// but neither requests nor pages.
package chart
