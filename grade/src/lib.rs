//! Grades samples of generated code against the tests of their tasks.
#![forbid(unsafe_code)]
