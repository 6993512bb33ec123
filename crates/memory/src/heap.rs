//! The server's own heap.

/// Gives memory that was freed back to the operating system, as far as the allocator can. Takes
/// milliseconds: for when much was freed that will not be needed soon.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` may be called at any time and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
