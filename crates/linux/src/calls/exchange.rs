//! Reading and writing the files of the direct protocol: each is one guest call.

use sandtide_abi::file::FLAG_NO_WAIT;

use crate::{
    Errno,
    files::flags,
    guest::Range,
    kernel::{Args, CallResult, Flow, Kernel, fail, value},
    vfs::ExchangeFile,
};

/// Reads into the first of the ranges that has room.
pub(super) fn read(file: ExchangeFile, ranges: &[Range], waits: bool) -> CallResult {
    let Some(Range { address, length }) = ranges.iter().find(|range| range.length > 0) else {
        return value(0u32);
    };
    let flags = if waits { 0 } else { FLAG_NO_WAIT };
    Ok(Flow::GuestCall { number: file.call(), args: [*address, *length, flags, 0, 0, 0] })
}

/// Writes what a call's arguments name.
pub(super) fn write(kernel: &Kernel, args: Args, file: ExchangeFile, given: u64) -> CallResult {
    let [fd, address, length, ..] = args;
    let description = kernel.files.get(fd)?;
    if !description.can_write() {
        return fail(Errno::BADF);
    }
    let waits = description.flags & flags::NONBLOCK == 0;
    let flags = given | if waits { 0 } else { FLAG_NO_WAIT };
    Ok(Flow::GuestCall { number: file.call(), args: [address, length, flags, 0, 0, 0] })
}
