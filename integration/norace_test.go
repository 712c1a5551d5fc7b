//go:build !race

package integration

const withRace = false
