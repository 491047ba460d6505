package zone

// ReadDep reads the file at path as the compiler would, and returns how it is.
func (o Opener) ReadDep(path string) (Dep, error) {
	s := source{opener: o, diags: &diagnostics{}}
	defer s.free()
	if _, _, err := s.open(path); err != nil {
		return Dep{}, err
	}
	return s.deps[0], nil
}
