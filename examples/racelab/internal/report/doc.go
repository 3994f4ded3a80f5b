// Package report turns the result of the race lab into one HTML page that needs
// nothing from anywhere: what happened, told for somebody who has never heard of
// fencing, with the pictures of one reward drawn from the log of the run.
//
// The page has light and dark colours and fits a telephone.
package report
