package memmeta_test

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meta/metatest"
)

func TestConformance(t *testing.T) {
	metatest.Run(t, metatest.Harness{New: func(t *testing.T) meta.Store { return memmeta.New(t) }})
}
