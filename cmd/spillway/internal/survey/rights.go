package survey

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
)

// rights asks IAM what each function's role lets it do.
func (s *surveyor) rights(ctx context.Context) {
	s.facts.Refused = map[doctor.Function]doctor.Fact[[]doctor.Permission]{}
	for _, fn := range doctor.All() {
		fact := s.facts.Functions[fn]
		if fact.Trouble != nil {
			s.facts.Refused[fn] = doctor.Fact[[]doctor.Permission]{Trouble: unasked("see function." + string(fn))}
			continue
		}
		s.facts.Refused[fn] = s.refused(ctx, fn, &fact.Value)
	}
}

func (s *surveyor) refused(ctx context.Context, fn doctor.Function, l *doctor.Lambda) (fact doctor.Fact[[]doctor.Permission]) {
	for _, right := range doctor.ExpectedOf(fn).Rights {
		resource := s.resourceOf(right.On, l)
		allowed, err := s.simulate(ctx, l.Role, right.Actions, resource)
		if err != nil {
			return doctor.Fact[[]doctor.Permission]{Trouble: troubleOf(err)}
		}
		for _, action := range right.Actions {
			if !allowed[strings.ToLower(action)] {
				fact.Value = append(fact.Value, doctor.Permission{Action: action, Resource: resource})
			}
		}
	}
	return fact
}

// resourceOf gives the ARN of what a right is on; the table's partition is the function's.
func (s *surveyor) resourceOf(on string, l *doctor.Lambda) string {
	a, err := arn.Parse(l.ARN)
	if err != nil {
		a = arn.ARN{Partition: "aws", Region: s.cfg.Region, AccountID: s.facts.Caller.Value.Account}
	}
	bucket := "arn:" + a.Partition + ":s3:::" + s.facts.BucketName
	switch on {
	case "table":
		a.Service, a.Resource = "dynamodb", "table/"+s.facts.TableName
	case "its log":
		a.Service, a.Resource = "logs", "log-group:"+l.LogGroup+":log-stream:doctor"
	case "leader":
		a.Service, a.Resource = "lambda", "function:"+s.facts.Functions[doctor.Leader].Value.Name
	case "bucket":
		return bucket
	default:
		return bucket + "/" + strings.TrimSuffix(on, "*") + "doctor"
	}
	return a.String()
}

// simulate tells which actions, in lower case, IAM allows a principal on a resource.
func (s *surveyor) simulate(ctx context.Context, principal string, actions []string, resource string) (map[string]bool, error) {
	allowed := map[string]bool{}
	pages := iam.NewSimulatePrincipalPolicyPaginator(s.iam, &iam.SimulatePrincipalPolicyInput{
		PolicySourceArn: &principal, ActionNames: actions, ResourceArns: []string{resource},
		ContextEntries: []iamtypes.ContextEntry{{
			ContextKeyName: aws.String("aws:SecureTransport"), ContextKeyType: iamtypes.ContextKeyTypeEnumBoolean, ContextKeyValues: []string{"true"},
		}},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for i := range page.EvaluationResults {
			r := &page.EvaluationResults[i]
			allowed[strings.ToLower(aws.ToString(r.EvalActionName))] = r.EvalDecision == iamtypes.PolicyEvaluationDecisionTypeAllowed
		}
	}
	return allowed, nil
}

// invoke asks IAM whether the caller may call the API.
func (s *surveyor) invoke(ctx context.Context) {
	fact := &s.facts.Invoke
	api, t := s.resource("AWS::ApiGatewayV2::Api", "Api")
	if t != nil {
		fact.Trouble = t
		return
	}
	caller, err := arn.Parse(s.facts.Caller.Value.ARN)
	if err != nil {
		fact.Trouble = &doctor.Trouble{Text: "your ARN cannot be read"}
		return
	}
	if caller.Resource == "root" {
		fact.Value = true // IAM does not bind it
		return
	}
	principal := caller.String()
	if rest, ok := strings.CutPrefix(caller.Resource, "assumed-role/"); ok {
		// A session: the policies are the role's, whose ARN has a path that the session's lacks.
		name, _, _ := strings.Cut(rest, "/")
		role, err := s.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
		if err != nil {
			fact.Trouble = troubleOf(err)
			return
		}
		principal = aws.ToString(role.Role.Arn)
	}
	const action = "execute-api:Invoke"
	resource := arn.ARN{
		Partition: caller.Partition, Service: "execute-api", Region: s.cfg.Region, AccountID: caller.AccountID, Resource: api + "/$default/GET/v1/topics",
	}
	allowed, err := s.simulate(ctx, principal, []string{action}, resource.String())
	if err != nil {
		fact.Trouble = troubleOf(err)
		return
	}
	fact.Value = allowed[strings.ToLower(action)]
}
