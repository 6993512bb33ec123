//! The control plane: makes a runtime from a configuration, and keeps it true.
#![forbid(unsafe_code)]
