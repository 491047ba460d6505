//go:build explore

package explore

import "github.com/dnsapp/dnsapp/internal/step"

func setHook()   { step.Hook = Access }
func clearHook() { step.Hook = nil }
