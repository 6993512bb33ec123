//! A server of its own for a test.

use std::{
    ffi::OsStr,
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::Pid;
pub use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    Client, Log, Request, Response,
    binary::{running, top},
};

/// What the line begins with that says that the server is ready, and where.
const READY: &str = "ready: ";

/// What the server says of a sandbox whose reset has not restored everything.
const MISMATCH: &str = "was not reset to its snapshot";

/// The file in the server's directory.
const CONFIGURATION: &str = "sandtide.toml";

/// A running `sandtide serve` that compares every sandbox with its snapshot after a reset. Killed
/// when it is dropped, which fails if one was not what its snapshot is.
pub struct Server {
    child: Child,
    addresses: Vec<String>,
    /// What it has logged.
    pub log: Log,
    directory: TempDir,
}

impl Server {
    /// Serves these tenants from one thread on a free port.
    pub fn start(tenants: &str) -> Self {
        Self::start_with("threads = 1", tenants)
    }

    /// Serves these tenants, and whatever else stands at the top of a configuration, with these lines in
    /// `[server]`.
    pub fn start_with(server: &str, rest: &str) -> Self {
        Self::of(&format!("[server]\nlisten = \"127.0.0.1:0\"\n{server}\n\n{rest}"))
    }

    /// Serves a whole configuration.
    ///
    /// # Panics
    /// If the server does not come up.
    pub fn of(configuration: &str) -> Self {
        Self::begin(configuration).ready()
    }

    /// Starts a server, and does not wait until it serves: see [`Self::ready`].
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn begin(configuration: &str) -> Self {
        Self::begin_as(configuration, |command| command)
    }

    /// Serves a whole configuration where there are no devices, and so no KVM. `None` where that cannot
    /// be arranged: it takes the right to mount.
    ///
    /// # Panics
    /// If the server does not come up.
    pub fn without_devices(configuration: &str) -> Option<Self> {
        const HIDE: &str = "mount -t tmpfs none /dev && exec \"$0\" \"$@\"";
        let hidden = |what: &[&OsStr]| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", HIDE]).args(what);
            command
        };
        if !hidden(&["true".as_ref()]).status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no right to hide /dev");
            return None;
        }
        let server = Self::begin_as(configuration, |command| {
            let what: Vec<_> =
                [command.get_program()].into_iter().chain(command.get_args()).collect();
            let mut hidden = hidden(&what);
            let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
            hidden.envs(set).env_remove("SANDTIDE_LOG");
            hidden
        });
        Some(server.ready())
    }

    /// Runs `sandtide serve` with these arguments in a directory, and does not wait until it serves.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn begin_in(directory: &Path, args: &[&str]) -> Self {
        let own = tempfile::tempdir().expect("a temporary directory");
        let mut command = running("serve");
        command.args(["--listen", "127.0.0.1:0", "--threads", "1"]).args(args);
        command.current_dir(directory).env_remove("SANDTIDE_LOG").env_remove("VIRTUAL_ENV");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = Log::of(child.stderr.take().expect("stderr is piped"));
        Self { child, addresses: Vec::new(), log, directory: own }
    }

    /// Serves an application of `tests/apps`, `module:attribute`, in an interpreter of this machine.
    ///
    /// # Panics
    /// If the server does not come up.
    pub fn application(target: &str, arguments: &[&str]) -> Self {
        Self::begin_application(target, arguments).ready()
    }

    /// As [`Self::application`], and does not wait until it serves.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn begin_application(target: &str, arguments: &[&str]) -> Self {
        Self::begin_application_in(&top().join("tests/apps"), target, arguments)
    }

    /// As [`Self::begin_application`], with the modules of another directory.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn begin_application_in(place: &Path, target: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = running("serve");
        command.args([target, "--listen", "127.0.0.1:0"]).args(arguments);
        command.current_dir(place).env_remove("SANDTIDE_LOG");
        // What the application prints is as good as a log.
        command.env("PYTHONUNBUFFERED", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = Log::of(child.stderr.take().expect("stderr is piped"));
        Self { child, addresses: Vec::new(), log, directory }
    }

    fn begin_as(configuration: &str, adapt: impl FnOnce(Command) -> Command) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = directory.path().join(CONFIGURATION);
        fs::write(&config, configuration).expect("the directory is ours");
        let mut command = running("serve");
        command.args(["--verify-resets", "always"]).arg(&config).env_remove("SANDTIDE_LOG");
        let mut command = adapt(command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = Log::of(child.stderr.take().expect("stderr is piped"));
        Self { child, addresses: Vec::new(), log, directory }
    }

    /// Waits until it serves.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn ready(mut self) -> Self {
        let ready = self.log.wait("the server listens", |line| line.starts_with(READY));
        self.addresses = ready[READY.len()..].split(' ').map(str::to_owned).collect();
        self
    }

    /// Where it listens: the first of its IP addresses.
    ///
    /// # Panics
    /// If it has none.
    pub fn address(&self) -> SocketAddr {
        let mut parsed = (0..self.addresses.len()).filter_map(|which| self.address_at(which));
        parsed.next().expect("the server listens on an IP address")
    }

    /// Where it listens, in the order of its configuration; `None` for a Unix socket.
    pub fn address_at(&self, which: usize) -> Option<SocketAddr> {
        let (_, address) = self.addresses[which].split_once("://")?;
        address.parse().ok()
    }

    /// Puts another configuration in the place of its own, in one step. It is read when the server
    /// notices, or is told to: see [`Self::signal`].
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn configure(&self, configuration: &str) {
        let unfinished = self.directory.path().join("unfinished");
        fs::write(&unfinished, configuration).expect("the directory is ours");
        let config = self.directory.path().join(CONFIGURATION);
        fs::rename(unfinished, config).expect("the directory is ours");
    }

    /// The directory that its configuration lies in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection to it.
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// One request on a connection of its own.
    pub fn ask(&self, request: &Request) -> Response {
        self.connect().ask(request)
    }

    /// One `GET` on a connection of its own.
    pub fn get(&self, tenant: &str, target: &str) -> Response {
        self.ask(&Request::get(tenant, target))
    }

    /// Asks it to stop, as an operator would.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("a child has a process id");
        rustix::process::kill_process(pid, signal).expect("the server is there");
    }

    /// Waits for it to exit.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait(&mut self) -> ExitStatus {
        // std has no wait with a time limit, but its log ends when it does.
        self.log.wait_end();
        self.child.wait().expect("a child can be waited for")
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child can be asked").is_none()
    }

    /// Page faults that the kernel settled without the disk, since the server started.
    pub fn minor_faults(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .expect("the server is there");
        // proc_pid_stat(5): the tenth field; the second is in parentheses and may hold spaces.
        let behind_name = stat.rsplit(") ").next().unwrap_or_default();
        let field = behind_name.split(' ').nth(7).and_then(|field| field.parse().ok());
        field.unwrap_or_else(|| panic!("not as proc(5) says: {stat}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the server ---\n{}", self.log.since(0).join("\n"));
            return;
        }
        // Every reset of every test was verified.
        self.log.wait_end();
        let left = self.log.since(0).into_iter().find(|line| line.contains(MISMATCH));
        assert!(left.is_none(), "a request has left something: {left:?}");
    }
}
