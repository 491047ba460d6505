//go:build dpdk

package eal

// #include <stdlib.h>
import "C"

import "unsafe"

// cStrings returns list as C has it, with the closing NULL.
func cStrings(list []string) **C.char {
	argv := (**C.char)(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	for i, s := range list {
		unsafe.Slice(argv, len(list))[i] = C.CString(s)
	}
	return argv
}

// named calls do with s as C has it.
func named(s string, do func(*C.char)) {
	p := C.CString(s)
	defer C.free(unsafe.Pointer(p))
	do(p)
}
