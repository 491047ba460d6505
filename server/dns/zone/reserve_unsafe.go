package zone

import "unsafe"

// room returns an empty slice with room for n Ts, which hold no pointer: in r if
// off is set, else, or where there is no such memory, in the Go heap. Once more
// than that is appended the slice leaves r.
func room[T any](r *reserve, n int, off bool) []T {
	var t T
	size := int(unsafe.Sizeof(t))
	if off {
		r.get(max(n, 1) * size)
	}
	if r.mem == nil {
		return make([]T, 0, n)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&r.mem[0])), len(r.mem)/size)[:0]
}

// drop gives back what the first n elements of list take, if list is in r.
func drop[T any](r *reserve, list []T, n int) {
	if r.mem == nil || unsafe.Pointer(unsafe.SliceData(list)) != unsafe.Pointer(&r.mem[0]) {
		return
	}
	var t T
	r.giveBack(n * int(unsafe.Sizeof(t)))
}
