package meter_test

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meta/metatest"
	"github.com/spillway-mq/spillway/pkg/meter"
)

func TestMetaConformance(t *testing.T) {
	metatest.Run(t, metatest.Harness{
		// The suite breaks rules on purpose, so violations are not reported.
		New: func(*testing.T) meta.Store { return meter.New().Meta(memmeta.New(nil)) },
	})
}
