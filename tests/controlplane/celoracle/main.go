// Command celoracle answers which devices a device selector matches, by the evaluator that Kubernetes itself uses for
// the CEL selectors of ResourceClaims and DeviceClasses. It is the judge in the tests of Adjoin's own evaluator.
//
// It reads JSON documents from standard input, one after the other, and answers each with one line of JSON on standard
// output, so that a caller may send one big batch and close, or keep the process and ask again and again.
//
// A question:
//
//	{
//	  "expressions": ["device.driver == 'gpu.example.com'", …],
//	  "devices": [{"driver": "gpu.example.com", <a device as in ResourceSlice.spec.devices of resource.k8s.io/v1>}, …],
//	  "environment": "stored"
//	}
//
// Of a device, attributes, capacity and allowMultipleAllocations are visible to an expression; other fields are read and
// ignored, as Kubernetes does. Fields that no device has are refused, so that a misspelt question gets no answer.
// "environment" may be left out. "stored" (the default) accepts what the scheduler accepts when it reads an existing
// claim; "new" accepts what the API server accepts in a new one.
//
// The answer:
//
//	{
//	  "costLimit": 1000000,
//	  "results": [
//	    {"expression": "…", "compileError": "compilation failed: …"},
//	    {"expression": "…", "maxCost": 42, "verdicts": [{"match": true, "cost": 5}, {"match": false, "error": "no such key: x", "cost": 3}]}
//	  ]
//	}
//
// results stand in the order of the expressions, verdicts in the order of the devices. An expression whose maxCost
// (the estimate of the worst case) is above costLimit compiles, but the API server refuses it in a new object; an
// evaluation that spends more than costLimit ends with an error. A device for which the evaluation fails does not match.
//
// Consumable capacity (device.allowMultipleAllocations) and attributes that hold lists are switched on.
//
// Exit status: 0 when every question was answered, 1 when a question was not understood (the reason is on standard error).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type question struct {
	Expressions []string `json:"expressions"`
	Devices     []device `json:"devices"`
	Environment string   `json:"environment"`
}

type device struct {
	Driver             string `json:"driver"`
	resourceapi.Device `json:",inline"`
}

type answer struct {
	CostLimit uint64   `json:"costLimit"`
	Results   []result `json:"results"`
}

type result struct {
	Expression   string    `json:"expression"`
	CompileError string    `json:"compileError,omitempty"`
	MaxCost      *uint64   `json:"maxCost,omitempty"`
	Verdicts     []verdict `json:"verdicts,omitempty"`
}

type verdict struct {
	Match bool    `json:"match"`
	Error string  `json:"error,omitempty"`
	Cost  *uint64 `json:"cost,omitempty"`
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	decoder.DisallowUnknownFields()
	for {
		var q question
		err := decoder.Decode(&q)
		if errors.Is(err, io.EOF) {
			return
		}
		var a answer
		if err == nil {
			a, err = ask(q)
		}
		if err == nil {
			err = encoder.Encode(a)
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "celoracle:", err)
			os.Exit(1)
		}
	}
}

func ask(q question) (answer, error) {
	envType := environment.StoredExpressions
	switch q.Environment {
	case "", "stored":
	case "new":
		envType = environment.NewExpressions
	default:
		return answer{}, fmt.Errorf("environment: %q is neither \"stored\" nor \"new\"", q.Environment)
	}
	compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	a := answer{CostLimit: resourceapi.CELSelectorExpressionMaxCost, Results: make([]result, 0, len(q.Expressions))}
	for _, expression := range q.Expressions {
		compiled := compiler.CompileCELExpression(expression, dracel.Options{EnvType: &envType})
		r := result{Expression: expression}
		if compiled.Error != nil {
			// Detail alone: Error() would put the error's type and an empty field path around it.
			r.CompileError = compiled.Error.Detail
		} else {
			r.MaxCost = &compiled.MaxCost
			r.Verdicts = make([]verdict, 0, len(q.Devices))
			for _, d := range q.Devices {
				r.Verdicts = append(r.Verdicts, judge(compiled, d))
			}
		}
		a.Results = append(a.Results, r)
	}
	return a, nil
}

func judge(compiled dracel.CompilationResult, d device) verdict {
	match, details, err := compiled.DeviceMatches(context.Background(), dracel.Device{
		Driver:                   d.Driver,
		AllowMultipleAllocations: d.AllowMultipleAllocations,
		Attributes:               d.Attributes,
		Capacity:                 d.Capacity,
	})
	v := verdict{Match: match && err == nil}
	if err != nil {
		v.Error = err.Error()
	}
	if details != nil {
		v.Cost = details.ActualCost()
	}
	return v
}
