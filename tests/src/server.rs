//! A server of its own for a test.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::{Client, Log, Request, Response, binary::sandtide};

/// A running `sandtide serve`, killed when it is dropped.
pub struct Server {
    child: Child,
    address: SocketAddr,
    /// What it has logged.
    pub log: Log,
    directory: TempDir,
}

impl Server {
    /// Serves these tenants from one thread on a free port.
    pub fn start(tenants: &str) -> Self {
        Self::start_with("threads = 1", tenants)
    }

    /// Serves these tenants with these lines in `[server]`.
    ///
    /// # Panics
    /// If the server does not come up.
    pub fn start_with(server: &str, tenants: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = directory.path().join("sandtide.toml");
        let text = format!("[server]\nlisten = \"127.0.0.1:0\"\n{server}\n\n{tenants}");
        fs::write(&config, text).expect("the directory is ours");
        let mut command = Command::new(sandtide());
        command.arg("serve").arg(&config).env_remove("SANDTIDE_LOG");
        Self::spawn(command, directory)
    }

    fn spawn(mut command: Command, directory: TempDir) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = Log::of(child.stderr.take().expect("stderr is piped"));
        let ready = log.wait("the server listens", |line| address_in(line).is_some());
        let address = address_in(&ready).expect("the line was found by its address");
        Self { child, address, log, directory }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
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
        Client::connect(self.address)
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
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("a child has a process id");
        rustix::process::kill_process(pid, Signal::TERM).expect("the server is there");
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

/// The address in the line that says that the server is ready.
fn address_in(line: &str) -> Option<SocketAddr> {
    let addresses = line.strip_prefix("ready: ")?;
    addresses.split(' ').next()?.strip_prefix("http://")?.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the server ---\n{}", self.log.since(0).join("\n"));
        }
    }
}
