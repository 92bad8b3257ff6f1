package spillway

import (
	"encoding/json"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2integrations"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"
)

// Route is one call of the API.
type Route struct {
	Method, Path string
}

// Routes lists the calls that f answers. There is no catch-all: API Gateway refuses anything else
// before a function is paid for. A test holds the lists against httpapi.Routes.
func Routes(f Function) []Route {
	const (
		topic    = "/v1/topics/{topic}"
		segment  = topic + "/segments/{segment}"
		delayed  = topic + "/delayed"
		sub      = topic + "/subscriptions/{subscription}"
		messages = topic + "/messages"
	)
	switch f {
	case Produce:
		return []Route{
			{"POST", messages},
			{"POST", topic + "/uploads"},
			{"POST", topic + "/references"},
			// It writes a body anew, which may need an object; consume puts none.
			{"PATCH", delayed + "/{id}"},
		}
	case Consume:
		return []Route{
			{"GET", topic + "/subscriptions"},
			{"PUT", sub},
			{"GET", sub},
			{"PATCH", sub},
			{"DELETE", sub},
			{"POST", sub + "/claims"},
			{"POST", sub + "/ack"},
			{"POST", sub + "/release"},
			{"POST", sub + "/extend"},
			{"POST", sub + "/seek"},
			{"GET", messages},
			{"GET", messages + "/{id}"},
			{"GET", segment + "/records"},
			{"GET", delayed},
			{"GET", delayed + "/{id}"},
			{"DELETE", delayed + "/{id}"},
		}
	case Leader:
		return []Route{
			{"GET", "/v1/topics"},
			{"PUT", topic},
			{"GET", topic},
			{"PATCH", topic},
			{"DELETE", topic},
			{"GET", topic + "/segments"},
			{"POST", segment + "/split"},
			{"POST", topic + "/segments/merge"},
			{"GET", "/v1/events"},
			{"GET", "/healthz"},
			{"GET", "/readyz"},
			{"GET", "/v1/openapi.yaml"},
		}
	}
	return nil
}

func (s *Spillway) addAPI() {
	props := &awsapigatewayv2.HttpApiProps{
		ApiName:            s.stack.StackName(), // need not be unique
		Description:        jsii.String("Spillway"),
		CreateDefaultStage: jsii.Bool(false),
		DefaultAuthorizer:  awsapigatewayv2authorizers.NewHttpIamAuthorizer(),
	}
	if j := s.props.JWT; j != nil {
		props.DefaultAuthorizer = awsapigatewayv2authorizers.NewHttpJwtAuthorizer(jsii.String("Tokens"), &j.Issuer,
			&awsapigatewayv2authorizers.HttpJwtAuthorizerProps{JwtAudience: stringsOf(j.Audience)})
		if len(j.Scopes) > 0 {
			props.DefaultAuthorizationScopes = stringsOf(j.Scopes)
		}
	}
	if len(s.props.CORSOrigins) > 0 {
		props.CorsPreflight = &awsapigatewayv2.CorsPreflightOptions{
			AllowOrigins: stringsOf(s.props.CORSOrigins),
			AllowMethods: &[]awsapigatewayv2.CorsHttpMethod{
				awsapigatewayv2.CorsHttpMethod_GET, awsapigatewayv2.CorsHttpMethod_PUT, awsapigatewayv2.CorsHttpMethod_POST,
				awsapigatewayv2.CorsHttpMethod_PATCH, awsapigatewayv2.CorsHttpMethod_DELETE,
			},
			AllowHeaders:  jsii.Strings("authorization", "content-type", "accept", "idempotency-key", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"),
			ExposeHeaders: jsii.Strings("x-request-id", "retry-after"),
			MaxAge:        awscdk.Duration_Hours(jsii.Number(1)),
		}
	}
	s.API = awsapigatewayv2.NewHttpApi(s.Construct, jsii.String("Api"), props)
	for _, f := range Functions() {
		routes := Routes(f)
		if len(routes) == 0 {
			continue
		}
		integration := awsapigatewayv2integrations.NewHttpLambdaIntegration(jsii.String(f.id()), s.Functions[f],
			&awsapigatewayv2integrations.HttpLambdaIntegrationProps{
				PayloadFormatVersion: awsapigatewayv2.PayloadFormatVersion_VERSION_2_0(),
				// One permission for each function: one for each route would outgrow the 20 KB
				// that a function's policy may have.
				ScopePermissionToRoute: jsii.Bool(false),
			})
		for _, r := range routes {
			s.API.AddRoutes(&awsapigatewayv2.AddRoutesOptions{
				Path: jsii.String(r.Path), Methods: &[]awsapigatewayv2.HttpMethod{awsapigatewayv2.HttpMethod(r.Method)},
				Integration: integration,
			})
		}
	}
	s.addStage()
}

func (s *Spillway) addStage() {
	s.Stage = awsapigatewayv2.NewHttpStage(s.Construct, jsii.String("Stage"), &awsapigatewayv2.HttpStageProps{
		HttpApi:    s.API,
		StageName:  jsii.String("$default"),
		AutoDeploy: jsii.Bool(true),
		Throttle: &awsapigatewayv2.ThrottleSettings{
			RateLimit: jsii.Number(s.props.RateLimit), BurstLimit: jsii.Number(s.props.BurstLimit),
		},
	})
	logs := awslogs.NewLogGroup(s.Construct, jsii.String("AccessLogs"), &awslogs.LogGroupProps{
		Retention: s.props.LogRetention, RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	// On the resource itself: the construct wants an object with methods, which jsii calls back into,
	// and gives API Gateway an ARN that ends in :*.
	stage, ok := s.Stage.Node().DefaultChild().(awsapigatewayv2.CfnStage)
	if !ok {
		panic("spillway: the stage's default child is no CfnStage")
	}
	stage.SetAccessLogSettings(&awsapigatewayv2.CfnStage_AccessLogSettingsProperty{
		DestinationArn: s.stack.FormatArn(&awscdk.ArnComponents{
			Service: jsii.String("logs"), Resource: jsii.String("log-group"),
			ArnFormat: awscdk.ArnFormat_COLON_RESOURCE_NAME, ResourceName: logs.LogGroupName(),
		}),
		Format: jsii.String(accessLogFormat()),
	})
}

// accessLogFormat is one JSON object for each call: who, what, how it ended, and how long it took.
// Neither query strings nor headers are in it.
func accessLogFormat() string {
	fields := map[string]string{
		"request_id":          "$context.requestId",
		"time":                "$context.requestTime",
		"ip":                  "$context.identity.sourceIp",
		"caller":              "$context.identity.userArn",
		"subject":             "$context.authorizer.claims.sub",
		"user_agent":          "$context.identity.userAgent",
		"route":               "$context.routeKey",
		"path":                "$context.path",
		"status":              "$context.status",
		"response_bytes":      "$context.responseLength",
		"latency_ms":          "$context.responseLatency",
		"function_latency_ms": "$context.integrationLatency",
		"function_error":      "$context.integrationErrorMessage",
		"auth_error":          "$context.authorizer.error",
		"error":               "$context.error.message",
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		panic(err) // strings always encode
	}
	return strings.TrimSpace(b.String())
}
