package process

import (
	"os"
	"strconv"
	"testing"
)

// Number is the whole number that an environment variable has, or otherwise if it is not set.
func Number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
