//! Files, directories and descriptors.

use std::{fs, os::unix::fs::symlink};

use sandtide_abi::{call, file};
use sandtide_engine::Stream;

use super::*;
use crate::files::flags;

/// A directory with links that try to leave it, beside a file that must stay out of reach.
fn granted() -> (tempfile::TempDir, Machine) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::write(root.join("file"), "contents").unwrap();
    fs::write(root.join("sub/inner"), "inner").unwrap();
    symlink("sub/inner", root.join("link")).unwrap();
    symlink("../../secret", root.join("sub/out")).unwrap();
    symlink(dir.path().join("secret"), root.join("absolute")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("sub/deep", root.join("dirlink")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), 0o666.into()).unwrap();
    let grants = [
        FileGrant { guest: "/data".into(), host: root, public: false },
        FileGrant { guest: "/etc/one".into(), host: dir.path().join("root/file"), public: false },
        FileGrant {
            guest: "/data/sub/mounted".into(),
            host: dir.path().join("root/sub"),
            public: false,
        },
    ];
    let machine = Machine::with_files(&grants).unwrap();
    (dir, machine)
}

#[test]
fn granted_files_are_read_through_links_inside() {
    let (_dir, mut machine) = granted();
    for (path, contents) in [
        ("/data/file", "contents"),
        ("/data/link", "inner"),
        ("/data/sub/../file", "contents"),
        ("/data/dirlink/../inner", "inner"),
        ("//data/./sub//inner", "inner"),
        ("/data/../data/file", "contents"),
        ("/etc/one", "contents"),
        ("/data/sub/mounted/inner", "inner"),
    ] {
        let fd = machine.open(path, 0).expect(path);
        assert_eq!(machine.read(fd, 100).unwrap(), contents.as_bytes(), "{path}");
        machine.call("close", &[fd]).unwrap();
    }
}

#[test]
fn the_way_to_a_grant_is_there() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "contents").unwrap();
    let grant = FileGrant { guest: "/tmp/a/b".into(), host: dir.path().to_owned(), public: false };
    let mut machine = Machine::<false>::with_files(&[grant]).unwrap();
    for path in ["/tmp/a", "/tmp/a/b"] {
        machine.open(path, 0o200_000).unwrap();
        let (text, stat) = (machine.text(path), machine.put(&[0; 128]));
        machine.call("newfstatat", &[-100i64 as u64, text, stat, 0]).unwrap();
    }
    let fd = machine.open("/tmp/a/b/file", 0).unwrap();
    assert_eq!(machine.read(fd, 16).unwrap(), b"contents");
    assert_eq!(machine.open("/tmp/c", 0), Err(Errno::NOENT));
}

#[test]
fn nothing_leads_out_of_a_grant() {
    let (_dir, mut machine) = granted();
    for path in [
        "/data/sub/out",
        "/data/absolute",
        "/data/magic",
        "/data/magic/etc/passwd",
        "/data/../secret",
        "/data/sub/../../secret",
        "/data/dirlink/../../../secret",
        "/data/dirlink/../../../../../../../../../../etc/passwd",
        "/secret",
        "/etc/passwd",
        "/etc/one/../passwd",
        "/proc/self/root/etc/passwd",
        "/proc/self/environ",
    ] {
        let result = machine.open(path, 0);
        assert!(result.is_err(), "{path} was opened");
    }
    assert_eq!(machine.open("/data/loop", 0), Err(Errno::LOOP));
    assert_eq!(machine.open("/etc/one/x", 0), Err(Errno::NOTDIR));
}

#[test]
fn a_link_leads_where_the_guest_would_look() {
    let dir = tempfile::tempdir().unwrap();
    let (bin, lib) = (dir.path().join("bin"), dir.path().join("lib"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(lib.join("deep")).unwrap();
    fs::write(lib.join("deep/real.so"), "library").unwrap();
    symlink("/usr/lib/deep", bin.join("absolute")).unwrap();
    symlink("../lib/deep/real.so", bin.join("relative")).unwrap();
    symlink("absolute/real.so", bin.join("twice")).unwrap();
    symlink(lib.join("deep/real.so"), bin.join("host")).unwrap();
    symlink("/tmp/made", bin.join("scratch")).unwrap();
    let grants = [
        FileGrant { guest: "/usr/bin".into(), host: bin, public: false },
        FileGrant { guest: "/usr/lib".into(), host: lib, public: false },
    ];
    let mut machine = Machine::<false>::with_files(&grants).unwrap();
    for path in [
        "/usr/bin/absolute/real.so",
        "/usr/bin/relative",
        "/usr/bin/twice",
        "/usr/bin/absolute/../deep/real.so",
        "/usr/bin/../bin/./twice",
    ] {
        let fd = machine.open(path, 0).expect(path);
        assert_eq!(machine.read(fd, 100).unwrap(), b"library", "{path}");
    }
    assert_eq!(machine.open("/usr/bin/host", 0), Err(Errno::NOENT), "the host's path");
    assert_eq!(machine.open("/usr/bin/relative/..", 0), Err(Errno::NOTDIR));
    assert_eq!(machine.open("/usr/bin/relative", 0o400_000), Err(Errno::LOOP));
    assert_eq!(machine.open("/usr/bin/scratch", 0), Err(Errno::NOENT));
    machine.open("/usr/bin/scratch", 0o101).expect("the link leads to where files can be made");
    machine.open("/tmp/made", 0).unwrap();
    let long = format!("/usr/bin{}", "/../bin".repeat(600));
    assert_eq!(machine.open(&long[..4000], 0), Err(Errno::NAMETOOLONG));
}

#[test]
fn a_public_grant_has_only_what_everybody_may_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    for (path, mode) in [("", 0o755), ("open", 0o711), ("closed", 0o700), ("closed/deep", 0o755)] {
        fs::create_dir_all(root.join(path)).unwrap();
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (path, mode) in
        [("public", 0o644), ("private", 0o640), ("open/file", 0o604), ("closed/deep/file", 0o644)]
    {
        fs::write(root.join(path), "x").unwrap();
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let one = |guest: &str, host| FileGrant { guest: guest.into(), host, public: true };
    let grants = [
        one("/etc/public", root.join("public")),
        one("/etc/private", root.join("private")),
        one("/lib", root),
    ];
    let mut machine = Machine::<false>::with_files(&grants).unwrap();
    for path in ["/lib/public", "/lib/open/file", "/lib", "/etc/public"] {
        machine.open(path, 0).expect(path);
    }
    for path in
        ["/lib/private", "/lib/closed/deep/file", "/lib/closed/deep", "/lib/open", "/etc/private"]
    {
        assert_eq!(machine.open(path, 0), Err(Errno::ACCESS), "{path}");
    }
}

#[test]
fn special_files_and_writes_are_refused_in_a_grant() {
    let (_dir, mut machine) = granted();
    assert_eq!(machine.open("/data/fifo", 0), Err(Errno::ACCESS));
    assert_eq!(machine.open("/data/file", 1), Err(Errno::ROFS));
    assert_eq!(machine.open("/data/new", 0o101), Err(Errno::ROFS));
    assert_eq!(machine.open("/data/file", 0o1000), Err(Errno::ROFS));
    assert_eq!(machine.open("/data/file", 0o300), Err(Errno::EXIST));
    let cwd = -100i64 as u64;
    let path = machine.text("/data/file");
    assert_eq!(machine.call("unlinkat", &[cwd, path, 0]), Err(Errno::ROFS));
    let new = machine.text("/data/new");
    assert_eq!(machine.call("mkdirat", &[cwd, new, 0o755]), Err(Errno::ROFS));
    assert_eq!(machine.call("renameat2", &[cwd, path, cwd, new, 0]), Err(Errno::ROFS));
    assert_eq!(machine.call("faccessat", &[cwd, path, 2]), Err(Errno::ROFS));
    assert_eq!(machine.call("faccessat", &[cwd, path, 4]), Ok(0));
}

#[test]
fn bad_grants_are_refused_at_the_start() {
    let grant = |guest: &str, host: &str| FileGrant {
        guest: guest.into(),
        host: host.into(),
        public: false,
    };
    for grants in [
        vec![grant("relative", "/")],
        vec![grant("/a/../b", "/")],
        vec![grant("/a", "/"), grant("/a/", "/")],
    ] {
        let result = Machine::<false>::with_files(&grants);
        assert!(matches!(result, Err(StartError::BadGrant { .. })));
    }
    for host in ["/nonexistent/file", "/dev/null"] {
        let result = Machine::<false>::with_files(&[grant("/a", host)]);
        assert!(matches!(result, Err(StartError::Grant { .. })), "{host}");
    }
}

#[test]
fn the_hosts_own_state_is_no_file() {
    let grants = [FileGrant { guest: "/host".into(), host: "/".into(), public: false }];
    let mut machine = Machine::<false>::with_files(&grants).unwrap();
    for path in ["/host/proc/self/environ", "/host/proc/version", "/host/dev/zero"] {
        assert_eq!(machine.open(path, 0), Err(Errno::ACCESS), "{path}");
    }
}

fn names(machine: &mut Machine, path: &str) -> Vec<String> {
    let fd = machine.open(path, 0o200_000).unwrap();
    let buffer = machine.put(&[0; 2048]);
    let mut names = Vec::new();
    loop {
        let count = machine.call("getdents64", &[fd, buffer, 64]).unwrap();
        if count == 0 {
            break;
        }
        let bytes = machine.bytes(buffer, count);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let size = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
            let name = rest[19..size].split(|byte| *byte == 0).next().unwrap();
            names.push(String::from_utf8(name.to_vec()).unwrap());
            rest = &rest[size..];
        }
    }
    machine.call("close", &[fd]).unwrap();
    names.sort();
    names
}

#[test]
fn the_files_of_proc_have_what_programs_look_for() {
    let mut machine = Machine::<false>::new();
    let mut text = |path: &str| {
        let fd = machine.open(path, 0).expect(path);
        String::from_utf8(machine.read(fd, 4096).unwrap()).unwrap()
    };
    let stat = text("/proc/self/stat");
    let fields: Vec<_> = stat.split_whitespace().collect();
    assert_eq!((fields.len(), fields[0], fields[19]), (52, "100", "1"));
    assert!(fields[22].parse::<u64>().unwrap() > 0, "{stat}");
    assert_eq!(text("/proc/100/stat"), stat);
    assert!(text("/proc/cpuinfo").starts_with("processor\t: 0\n"));
    assert!(text("/proc/stat").contains("\ncpu0 0 0 "));
    assert!(text("/proc/version").starts_with("Linux version 6.1"));
    assert_eq!(text("/proc/self/statm").split(' ').count(), 7);
    assert!(text("/proc/uptime").parse::<f64>().is_err(), "two numbers");
    assert_eq!(machine.open("/etc/passwd", 0), Err(Errno::NOENT), "it loads no libraries");
}

#[test]
fn directories_list_files_and_mounts() {
    let (_dir, mut machine) = granted();
    assert_eq!(
        names(&mut machine, "/"),
        [".", "..", "data", "dev", "etc", "proc", "sandtide", "sys", "tmp"]
    );
    assert_eq!(
        names(&mut machine, "/etc"),
        [".", "..", "hosts", "nsswitch.conf", "one", "resolv.conf"]
    );
    assert_eq!(names(&mut machine, "/data/sub"), [".", "..", "deep", "inner", "mounted", "out"]);
    machine.open("/tmp/new", 0o102).unwrap();
    assert_eq!(names(&mut machine, "/tmp"), [".", "..", "new"]);
}

#[test]
fn scratch_files_can_be_written_and_renamed() {
    let mut machine = Machine::new();
    let cwd = -100i64 as u64;
    let fd = machine.open("/tmp/a", 0o302).unwrap();
    assert_eq!(machine.open("/tmp/a", 0o302), Err(Errno::EXIST));
    assert_eq!(machine.write(fd, b"hello"), Ok(5));
    assert_eq!(machine.call("lseek", &[fd, 1, 0]), Ok(1));
    assert_eq!(machine.read(fd, 100).unwrap(), b"ello");
    assert_eq!(machine.call("lseek", &[fd, -1i64 as u64, 0]), Err(Errno::INVAL));
    let (a, b) = (machine.text("/tmp/a"), machine.text("/tmp/b"));
    machine.call("renameat2", &[cwd, a, cwd, b, 0]).unwrap();
    assert_eq!(machine.open("/tmp/a", 0), Err(Errno::NOENT));
    assert_eq!(machine.call("ftruncate", &[fd, 1 << 40]), Err(Errno::NOSPC));
    machine.call("ftruncate", &[fd, 2]).unwrap();
    let append = machine.open("/tmp/b", 0o2001).unwrap();
    machine.write(append, b"y").unwrap();
    machine.call("unlinkat", &[cwd, b, 0]).unwrap();
    let buffer = machine.put(&[0; 8]);
    assert_eq!(machine.call("pread64", &[fd, buffer, 8, 0]), Ok(3));
    assert_eq!(machine.bytes(buffer, 3), b"hey");
}

#[test]
fn the_scratch_area_is_limited() {
    let mut machine = Machine::new();
    let fd = machine.open("/tmp/big", 0o102).unwrap();
    let mut total = 0;
    let buffer = machine.put(&[1; 4096]);
    let errno = loop {
        match machine.call("write", &[fd, buffer, 4096]) {
            Ok(count) => total += count,
            Err(errno) => break errno,
        }
    };
    assert_eq!(errno, Errno::NOSPC);
    assert!(total <= limits().scratch);
    assert_eq!(machine.open("/tmp/more/../x/", 0o102), Err(Errno::ISDIR));
}

#[test]
fn descriptors_are_limited_and_the_lowest_is_taken() {
    let mut machine = Machine::new();
    let mut last = 2;
    let errno = loop {
        match machine.open("/dev/null", 2) {
            Ok(fd) => {
                assert_eq!(fd, last + 1);
                last = fd;
            }
            Err(errno) => break errno,
        }
    };
    assert_eq!((errno, last), (Errno::MFILE, u64::from(limits().descriptors) - 1));
    let pair = machine.put(&[0; 8]);
    assert_eq!(machine.call("pipe2", &[pair, 0]), Err(Errno::MFILE));
    assert_eq!(machine.call("dup", &[0]), Err(Errno::MFILE));
    machine.call("close", &[5]).unwrap();
    assert_eq!(machine.call("close", &[5]), Err(Errno::BADF));
    assert_eq!(machine.call("pipe2", &[pair, 0]), Err(Errno::MFILE));
    assert_eq!(machine.call("dup", &[1]), Ok(5));
    assert_eq!(machine.call("dup3", &[1, 16, 0]), Err(Errno::BADF));
    machine.call("close_range", &[3, u64::MAX, 0]).unwrap();
    assert_eq!(machine.open("/dev/null", 0), Ok(3));
}

#[test]
fn duplicates_share_their_offset() {
    let mut machine = Machine::new();
    let fd = machine.open("/tmp/a", 0o102).unwrap();
    machine.write(fd, b"abc").unwrap();
    let copy = machine.call("dup", &[fd]).unwrap();
    machine.call("lseek", &[fd, 1, 0]).unwrap();
    assert_eq!(machine.read(copy, 1).unwrap(), b"b");
    machine.call("close", &[fd]).unwrap();
    assert_eq!(machine.read(copy, 1).unwrap(), b"c");
}

#[test]
fn standard_streams_are_the_console_and_what_the_host_gives() {
    let mut machine = Machine::new();
    assert_eq!(machine.write(1, b"out"), Ok(3));
    assert_eq!(machine.write(2, b"err"), Ok(3));
    assert_eq!(machine.console.text(Stream::Stdout), "out");
    assert_eq!(machine.console.text(Stream::Stderr), "err");
    assert_eq!(machine.read(0, 10).unwrap(), b"");
    machine.input = Some(b"input");
    assert_eq!(machine.read(0, 10).unwrap(), b"input");
    assert_eq!(machine.write(0, b"x"), Err(Errno::BADF));
    assert_eq!(machine.call("ioctl", &[1, 0x5401, DATA]), Err(Errno::NOTTY));
    assert_eq!(machine.call("lseek", &[1, 0, 1]), Err(Errno::SPIPE));
}

#[test]
fn the_working_directory_is_where_relative_paths_start() {
    let (_dir, mut machine) = granted();
    let path = machine.text("/data/sub");
    machine.call("chdir", &[path]).unwrap();
    let fd = machine.open("inner", 0).unwrap();
    assert_eq!(machine.read(fd, 10).unwrap(), b"inner");
    assert!(machine.open("../file", 0).is_ok());
    let buffer = machine.put(&[0; 64]);
    assert_eq!(machine.call("getcwd", &[buffer, 64]), Ok(10));
    assert_eq!(machine.bytes(buffer, 10), b"/data/sub\0");
    assert_eq!(machine.call("getcwd", &[buffer, 9]), Err(Errno::RANGE));
    let file = machine.text("/data/file");
    assert_eq!(machine.call("chdir", &[file]), Err(Errno::NOTDIR));
}

#[test]
fn texts_devices_and_the_program_link_are_there() {
    let mut machine = Machine::new();
    let fd = machine.open("/proc/self/maps", 0).unwrap();
    let maps = String::from_utf8(machine.read(fd, 4000).unwrap()).unwrap();
    assert!(maps.starts_with("00010000-00020000 r-xp"), "{maps}");
    assert!(maps.contains("[stack]"));
    let fd = machine.open("/dev/urandom", 0).unwrap();
    let random = machine.read(fd, 32).unwrap();
    assert_ne!(random, machine.read(fd, 32).unwrap());
    let fd = machine.open("/dev/full", 1).unwrap();
    assert_eq!(machine.write(fd, b"x"), Err(Errno::NOSPC));
    let (path, buffer) = (machine.text("/proc/self/exe"), machine.put(&[0; 64]));
    assert_eq!(machine.call("readlinkat", &[0, path, buffer, 64]), Ok(12));
    assert_eq!(machine.bytes(buffer, 12), b"/bin/program");
    assert_eq!(machine.open("/proc/self/exe", 0), Err(Errno::NOENT));
    assert_eq!(machine.open("/dev/null/x", 0), Err(Errno::NOTDIR));
    assert_eq!(machine.open("/etc/localtime", 0), Err(Errno::NOENT));
}

#[test]
fn a_granted_link_leads_to_the_grant_that_it_names() {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().canonicalize().unwrap();
    std::fs::create_dir(top.join("zones")).unwrap();
    std::fs::write(top.join("zones/UTC"), "a zone").unwrap();
    let absolute = top.join("zones/UTC");
    std::os::unix::fs::symlink(&absolute, top.join("local")).unwrap();
    std::os::unix::fs::symlink("outside", top.join("lost")).unwrap();
    std::fs::write(top.join("outside"), "granted by the link only").unwrap();
    let grants: Vec<FileGrant> = ["zones", "local", "lost"]
        .map(|name| top.join(name))
        .map(|host| FileGrant { guest: host.to_str().unwrap().to_owned(), host, public: false })
        .into();
    let mut machine = Machine::<false>::with_files(&grants).unwrap();
    let (local, buffer) = (machine.text(&grants[1].guest), machine.put(&[0; 256]));
    let here = -100i64 as u64;
    let length = machine.call("readlinkat", &[here, local, buffer, 256]).unwrap();
    assert_eq!(machine.bytes(buffer, length), absolute.as_os_str().as_encoded_bytes());
    let file = machine.open(&grants[1].guest, 0).unwrap();
    assert_eq!(machine.read(file, 16).unwrap(), b"a zone");
    let lost = machine.text(&grants[2].guest);
    assert_eq!(machine.call("readlinkat", &[here, lost, buffer, 256]), Err(Errno::INVAL));
    let file = machine.open(&grants[2].guest, 0).unwrap();
    assert_eq!(machine.read(file, 64).unwrap(), b"granted by the link only");
}

#[test]
fn the_files_of_the_direct_protocol_are_guest_calls() {
    let mut machine = Machine::new();
    let buffer = machine.put(&[0; 64]);
    let ranges = machine.words(&[buffer, 0, buffer, 8]);
    let call = |number, args: [u64; 3]| {
        let [first, second, flags] = args;
        Action::GuestCall { number, args: [first, second, flags, 0, 0, 0] }
    };
    for (path, number) in [
        (file::REQUESTS, call::RECEIVE),
        (file::BODY, call::FETCH),
        (file::TRAILERS, call::FETCH_TRAILERS),
    ] {
        assert_eq!(machine.open(path, 1), Err(Errno::ACCESS));
        assert_eq!(machine.open(path, 2), Err(Errno::ACCESS));
        let fd = machine.open(path, 0).unwrap();
        assert_eq!(machine.action("read", &[fd, buffer, 64]), call(number, [buffer, 64, 0]));
        assert_eq!(machine.action("readv", &[fd, ranges, 2]), call(number, [buffer, 8, 0]));
        assert_eq!(machine.call("read", &[fd, buffer, 0]), Ok(0));
        assert_eq!(machine.write(fd, b"x"), Err(Errno::BADF));
        let fd = machine.open(path, u64::from(flags::NONBLOCK)).unwrap();
        let no_wait = call(number, [buffer, 64, file::FLAG_NO_WAIT]);
        assert_eq!(machine.action("read", &[fd, buffer, 64]), no_wait);
        assert_eq!(machine.call("pread64", &[fd, buffer, 64, 0]), Err(Errno::SPIPE));
    }
    assert_eq!(machine.open(file::RESPONSE, 0), Err(Errno::ACCESS));
    let fd = machine.open(file::RESPONSE, 0o1101).unwrap();
    let write = machine.action("write", &[fd, buffer, 16]);
    assert_eq!(write, call(call::SEND, [buffer, 16, 0]));
    let write = machine.action("writev", &[fd, ranges, 2]);
    assert_eq!(write, call(call::SEND, [ranges, 2, file::FLAG_GATHER]));
    assert_eq!(machine.read(fd, 1), Err(Errno::BADF));
    assert_eq!(machine.call("pwrite64", &[fd, buffer, 16, 0]), Err(Errno::SPIPE));
}
