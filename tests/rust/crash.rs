//! Crash tests: to come.
