package ring

import "unsafe"

// within reports whether b lies within whole.
func within(b, whole []byte) bool {
	if len(b) == 0 {
		return true
	}
	at := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&whole[0]))
	return at <= uintptr(len(whole)) && at+uintptr(len(b)) <= uintptr(len(whole))
}
