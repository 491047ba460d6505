// Package config reads, checks and describes the configuration file.
//
// Invariant: a *Config that Load returns without error is complete and
// runnable as far as the file alone can tell; whatever is wrong is reported in
// one go, each Problem with file, line, key, what is wrong and what would be
// right. viper is used here and nowhere else.
package config
