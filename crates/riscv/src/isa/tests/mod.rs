//! Tests of the instruction set.

use sandtide_memory::{Access, Space};

use super::{Code, Cpu, Exit, run};
