//! `reset`: snapshot memory under random stores, maps, unmaps and changes of access.
//!
//! Must hold: memory is what a simple model says it is; and after a reset, however the request
//! went, it is the snapshot, byte for byte and page for page.

use std::sync::Arc;

use arbitrary::Unstructured;
use sandtide_memory::{Access, Denied, PAGE, SPACE, Space};

use crate::input::next;

/// The pages that are used: some at the start, more further up, and the last ones. The very first
/// and the very last can never be mapped.
const WINDOWS: [(usize, usize); 3] = [(1, 8), (0x400, 48), (SPACE / PAGE - 5, 4)];
const WINDOW_PAGES: usize = 60;

/// Pages that may be written.
const LIMIT_PAGES: usize = 40;

/// Operations of one run.
const MOST_OPERATIONS: usize = 400;

pub(crate) fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let limit = (LIMIT_PAGES * PAGE) as u64;
    let mut booted = Pair { space: Space::new(limit).expect("a space"), model: Model::default() };
    for _ in 0..next::<u8>(&mut input) {
        booted.operate(&mut input);
    }
    let snapshot = Arc::new(booted.space.freeze().expect("a snapshot"));
    let frozen = booted.model;
    let space = Space::from_snapshot(snapshot, limit).expect("a sandbox");
    let mut pair = Pair { space, model: frozen.clone() };
    pair.check();
    let available = pair.space.available();
    let mut operations = 0;
    while operations < MOST_OPERATIONS && !input.is_empty() {
        operations += 1;
        if next::<u8>(&mut input).is_multiple_of(32) {
            // Enough resets to reach the one that gives memory back.
            let times = (next::<u8>(&mut input) % 4) * 32 + 1;
            pair.reset_to(&frozen, times, available);
            pair.check();
        } else {
            pair.operate(&mut input);
        }
    }
    pair.check();
    pair.reset_to(&frozen, 1, available);
    pair.check();
    // Looks at the whole address space, which takes a while.
    assert_eq!(pair.space.differs_from_snapshot(), None, "the reset left something");
}

/// What a page holds.
#[derive(Debug, Clone)]
enum Content {
    Zero,
    Bytes(Box<[u8; PAGE]>),
    /// Unmapped memory may or may not be cleared; mapping it clears it.
    Unknown,
}

#[derive(Debug, Clone)]
struct Page {
    /// Read, write, execute.
    access: [bool; 3],
    content: Content,
}

/// The pages of the windows, one after the other.
#[derive(Debug, Clone)]
struct Model(Vec<Page>);

impl Default for Model {
    fn default() -> Self {
        Self(vec![Page { access: [false; 3], content: Content::Zero }; WINDOW_PAGES])
    }
}

struct Pair {
    space: Space,
    model: Model,
}

/// The address of a page of the model.
fn address_of(page: usize) -> u64 {
    let mut rest = page;
    for (first, pages) in WINDOWS {
        if rest < pages {
            return ((first + rest) * PAGE) as u64;
        }
        rest -= pages;
    }
    unreachable!("no page {page} in the model")
}

/// Pages of the model that lie side by side.
fn pages(input: &mut Unstructured<'_>) -> std::ops::Range<usize> {
    let (window, first, count): (u8, u8, u8) = next(input);
    let (start, length) = match window % 8 {
        0 => (0, WINDOWS[0].1),
        1 => (WINDOWS[0].1 + WINDOWS[1].1, WINDOWS[2].1),
        _ => (WINDOWS[0].1, WINDOWS[1].1),
    };
    let first = usize::from(first) % length;
    let count = usize::from(count) % (length - first) + 1;
    start + first..start + first + count
}

fn access_of([read, write, execute]: [bool; 3]) -> Access {
    [(read, Access::READ), (write, Access::WRITE), (execute, Access::EXECUTE)]
        .into_iter()
        .filter(|(granted, _)| *granted)
        .fold(Access::NONE, |all, (_, access)| all.and(access))
}

impl Pair {
    fn operate(&mut self, input: &mut Unstructured<'_>) {
        match next::<u8>(input) % 8 {
            0 => self.map(input),
            1 => self.unmap(input),
            2 => self.protect(input),
            3 => self.store_narrow(input),
            4 => self.load(input),
            _ => self.store_wide(input),
        }
    }

    fn map(&mut self, input: &mut Unstructured<'_>) {
        let (pages, access) = (pages(input), access(input));
        let length = (pages.len() * PAGE) as u64;
        self.space.map(address_of(pages.start), length, access_of(access));
        self.model.0[pages].fill(Page { access, content: Content::Zero });
    }

    fn unmap(&mut self, input: &mut Unstructured<'_>) {
        let pages = pages(input);
        self.space.unmap(address_of(pages.start), (pages.len() * PAGE) as u64);
        for page in &mut self.model.0[pages] {
            page.access = [false; 3];
            if !matches!(page.content, Content::Zero) {
                page.content = Content::Unknown;
            }
        }
    }

    fn protect(&mut self, input: &mut Unstructured<'_>) {
        let (pages, access) = (pages(input), access(input));
        let length = (pages.len() * PAGE) as u64;
        self.space.protect(address_of(pages.start), length, access_of(access));
        self.model.0[pages].iter_mut().for_each(|page| page.access = access);
    }

    /// A store of 8 bytes, perhaps across a boundary of pages.
    fn store_narrow(&mut self, input: &mut Unstructured<'_>) {
        let page = pages(input).start;
        let offset = usize::from(next::<u16>(input)) % PAGE;
        let bytes: [u8; 8] = next(input);
        let address = (address_of(page) as usize + offset) as u32;
        let result = self.space.store(address, bytes);
        self.model_store(page, offset, &bytes, result);
    }

    /// A system call's write, to up to three pages.
    fn store_wide(&mut self, input: &mut Unstructured<'_>) {
        let page = pages(input).start;
        let offset = usize::from(next::<u16>(input)) % PAGE;
        let length = usize::from(next::<u16>(input)) % (2 * PAGE);
        let value = next::<u8>(input) | 1;
        let address = (address_of(page) as usize + offset) as u32;
        let bytes = vec![value; length];
        let result = self.space.view_mut(address, length).map(|view| view.copy_from_slice(&bytes));
        self.model_store(page, offset, &bytes, result);
    }

    fn model_store(
        &mut self,
        page: usize,
        offset: usize,
        bytes: &[u8],
        result: Result<(), Denied>,
    ) {
        let count = if bytes.is_empty() { 0 } else { (offset + bytes.len()).div_ceil(PAGE) };
        let inside = self.adjacent(page, count);
        let allowed = inside && self.model.0[page..page + count].iter().all(|page| page.access[1]);
        match result {
            Ok(()) => assert!(allowed, "a store to page {page} that the guest may not write"),
            Err(Denied::Protection) => assert!(!allowed, "a store to page {page} was refused"),
            // How many pages are fresh is not modelled, only that the limit is not too low.
            Err(Denied::Limit) => {
                assert!(allowed);
                assert!(self.space.available() < (count * PAGE) as u64);
            }
        }
        if result.is_err() {
            return;
        }
        for (index, byte) in bytes.iter().enumerate() {
            let at = offset + index;
            let content = &mut self.model.0[page + at / PAGE].content;
            match content {
                Content::Zero => {
                    let mut fresh = Box::new([0; PAGE]);
                    fresh[at % PAGE] = *byte;
                    *content = Content::Bytes(fresh);
                }
                Content::Bytes(page) => page[at % PAGE] = *byte,
                Content::Unknown => {}
            }
        }
    }

    /// Whether the model has these pages, and the address space has them side by side.
    fn adjacent(&self, page: usize, count: usize) -> bool {
        page + count <= WINDOW_PAGES
            && (page..page + count)
                .all(|next| address_of(next) == address_of(page) + ((next - page) * PAGE) as u64)
    }

    /// A load of 8 bytes, perhaps across a boundary of pages.
    fn load(&mut self, input: &mut Unstructured<'_>) {
        let page = pages(input).start;
        let offset = usize::from(next::<u16>(input)) % PAGE;
        let address = (address_of(page) as usize + offset) as u32;
        let count = (offset + 8).div_ceil(PAGE);
        let inside = self.adjacent(page, count);
        let allowed = inside && self.model.0[page..page + count].iter().all(|page| page.access[0]);
        let loaded = self.space.load::<8>(address);
        assert_eq!(loaded.is_ok(), allowed, "a load of {address:#x}");
        for (index, byte) in loaded.iter().flatten().enumerate() {
            let at = offset + index;
            match &self.model.0[page + at / PAGE].content {
                Content::Zero => assert_eq!(*byte, 0, "{address:#x}"),
                Content::Bytes(bytes) => assert_eq!(*byte, bytes[at % PAGE], "{address:#x}"),
                Content::Unknown => {}
            }
        }
    }

    fn reset_to(&mut self, frozen: &Model, times: u8, available: u64) {
        for _ in 0..times {
            self.space.reset().expect("the kernel takes memory back");
            assert_eq!(self.space.written_pages(), 0);
            assert_eq!(self.space.available(), available, "the reset leaves another limit");
        }
        self.model.clone_from(frozen);
    }

    /// Compares every page with the model.
    fn check(&mut self) {
        for (index, page) in self.model.0.iter().enumerate() {
            let address = address_of(index) as u32;
            let seen = self.space.view(address, PAGE);
            assert_eq!(seen.is_ok(), page.access[0], "reading {address:#x}");
            assert_eq!(self.space.fetch(address).is_ok(), page.access[2], "{address:#x}");
            match (&page.content, seen) {
                (Content::Zero, Ok(bytes)) => assert!(bytes == [0; PAGE], "{address:#x}"),
                (Content::Bytes(expected), Ok(bytes)) => {
                    assert!(bytes == expected.as_slice(), "{address:#x}");
                }
                _ => {}
            }
        }
    }
}

/// Nothing, or as engines give it: whatever can be written or executed can be read.
fn access(input: &mut Unstructured<'_>) -> [bool; 3] {
    match next::<u8>(input) % 8 {
        0 => [false; 3],
        1 => [true, false, false],
        2 => [true, false, true],
        3 => [true, true, true],
        _ => [true, true, false],
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let map = [0, 2, 0, 47, 4];
    let store = [5, 2, 3, 0, 10, 0, 0x10, 0x20, 7];
    let boot: Vec<u8> = [2].into_iter().chain(map).chain(store).collect();
    let mut short = boot.clone();
    let mut long = boot;
    // Each operation follows a byte that says whether there is a reset instead.
    for operation in
        [&store[..], &[1, 2, 0, 47], &map, &[2, 2, 5, 9, 1], &[3, 2, 9, 0, 0xfc, 0x0f, 1, 2, 3]]
    {
        short.push(1);
        short.extend(operation);
    }
    for page in 0..40 {
        long.extend([1, 5, 2, page, 0, 0, 0, 0xff, 0xff, 9]);
    }
    long.extend([0, 3, 1, 1, 2, 0, 47, 0, 3]);
    vec![short, long, vec![]]
}
