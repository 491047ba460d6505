package config

import (
	"fmt"
	"os/user"
	"strconv"
)

// LookupUser returns the ids of a user given by name or by numeric id. A
// numeric id needs no entry in the user database, as in a container that has
// none; its group has then the same number. The error matches
// user.UnknownUserError or the errors of the database.
func LookupUser(name string) (uid, gid uint32, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		id, numErr := strconv.ParseUint(name, 10, 32)
		if numErr != nil {
			return 0, 0, fmt.Errorf("looking up user %q: %w", name, err)
		}
		if u, err = user.LookupId(name); err != nil {
			return uint32(id), uint32(id), nil
		}
	}
	if uid, err = parseID(u.Uid); err != nil {
		return 0, 0, fmt.Errorf("looking up user %q: %w", name, err)
	}
	if gid, err = parseID(u.Gid); err != nil {
		return 0, 0, fmt.Errorf("looking up user %q: %w", name, err)
	}
	return uid, gid, nil
}

func parseID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
