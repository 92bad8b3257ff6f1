package host

import (
	"context"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/spillway-mq/spillway/pkg/httpapi"
)

// API is a host that answers HTTP calls. It is apart from Host because the compactor answers none, and the HTTP API is
// a good part of a program.
type API struct {
	*Host
	adapter *httpadapter.HandlerAdapterV2
}

// API makes the host answer HTTP calls.
func (h *Host) API() *API {
	return &API{h, httpadapter.NewV2(h.System.Handler(httpapi.Deps{Observe: h.metrics.observe}))}
}

// HTTP answers one call of the API. The call's own time ends before Lambda's, so that it ends with an
// answer: what waits is answered empty, what hangs is answered as unavailable.
func (h *API) HTTP(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	ctx, cancel := Budget(ctx)
	defer cancel()
	answer, err := h.adapter.ProxyWithContext(ctx, event)
	if err != nil {
		// The event is none of API Gateway's: whoever sent it is told so, and nothing of it is logged.
		h.Logger.Error("event could not be read as an HTTP call")
		return BadEvent(), nil
	}
	return answer, nil
}

// BadEvent answers an event that is no HTTP call.
func BadEvent() events.APIGatewayV2HTTPResponse {
	return events.APIGatewayV2HTTPResponse{
		StatusCode: http.StatusBadRequest, Headers: map[string]string{"Content-Type": "application/json"},
		Body: `{"error":{"code":"invalid_argument","message":"the event is not an HTTP call","retryable":false}}`,
	}
}
