//! The real binary, as a user meets it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod configuration;
mod constant;
mod errors;
mod guest;
mod help;
mod run;
mod serve;
mod support;
