//! What is known of a tenant's program: where it comes from, and what became of it.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use sandtide_config::{Load, Program as Spec, Serves, Tenant};
use sandtide_engine::{Isolation, Limits};
use sandtide_runtime::{Slot, SlotState, TenantLog};
use sha2::{Digest as _, Sha256};

/// So many versions are remembered by what they were made from: the one that serves, and those
/// that may come back.
const REMEMBERED: usize = 4;

/// So many files that a program has read are watched.
const MOST_FILES: usize = 4096;

/// A tenant with a program. It stays the same when the tenant's entry in the configuration
/// changes.
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    pub(crate) slot: Arc<Slot>,
    inner: Mutex<Inner>,
}

struct Inner {
    tenant: Arc<Tenant>,
    log: Arc<TenantLog>,
    /// By number.
    versions: Vec<(u64, Origin)>,
    /// What is not tried again as it is, as long as another version serves.
    refused: Option<Origin>,
    /// The last failure that was logged.
    said: Option<String>,
    /// The file as it was when it was last read.
    signature: Option<Signature>,
    /// What the program that was loaded last has read, as it was then.
    files: Vec<(PathBuf, Option<Signature>)>,
    /// One of them has changed.
    is_stale: bool,
    job: Job,
}

/// Everything that a version is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    image: [u8; 32],
    spec: Spec,
    limits: Limits,
}

/// A file's identity: another one says that it is worth to look at the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    None,
    Queued,
    Running {
        /// Something has changed meanwhile.
        again: bool,
    },
}

/// What a job works with: the tenant as it was when the job began.
pub(crate) struct Order {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) log: Arc<TenantLog>,
}

/// What is to be done about a file's content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is what serves.
    Nothing,
    /// It is what was refused.
    Refused,
    /// It is to be loaded, for this reason.
    Load(&'static str),
}

impl Origin {
    pub(crate) fn new(image: &[u8], spec: &Spec, limits: &Limits) -> Self {
        let image = Sha256::digest(image).into();
        Self { image, spec: spec.clone(), limits: limits.clone() }
    }
}

impl Signature {
    /// Of no file.
    const UNKNOWN: Self = Self { device: 0, inode: 0, size: 0, modified: (0, 0), changed: (0, 0) };

    /// Of the file, or the directory, at the end of all links.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Entry {
    pub(crate) fn new(tenant: Arc<Tenant>, slot: Arc<Slot>, log: Arc<TenantLog>) -> Self {
        let inner = Mutex::new(Inner {
            tenant: tenant.clone(),
            log,
            versions: Vec::new(),
            refused: None,
            said: None,
            signature: None,
            files: Vec::new(),
            is_stale: false,
            job: Job::None,
        });
        Self { name: tenant.name.as_str().into(), slot, inner }
    }

    pub(crate) fn order(&self) -> Order {
        let inner = self.inner();
        Order { tenant: inner.tenant.clone(), log: inner.log.clone() }
    }

    /// Gives the tenant another entry in the configuration.
    pub(crate) fn configure(&self, tenant: Arc<Tenant>, log: Arc<TenantLog>) {
        let mut inner = self.inner();
        inner.tenant = tenant;
        inner.log = log;
    }

    /// What is to be done about a content.
    pub(crate) fn need(&self, origin: &Origin, order: &Order) -> Need {
        let Some(version) = self.slot.version() else {
            return Need::Load(match order.tenant.load {
                Load::Start => "it is wanted from the start",
                Load::FirstUse => "an exchange waits for it",
            });
        };
        let mut inner = self.inner();
        if std::mem::take(&mut inner.is_stale) {
            return Need::Load("a file that it has read has changed");
        }
        let serves = inner.versions.iter().find(|(number, _)| *number == version.number());
        match serves {
            Some((_, serves)) if serves == origin => {
                inner.refused = None;
                inner.said = None;
                Need::Nothing
            }
            _ if inner.refused.as_ref() == Some(origin) => Need::Refused,
            Some((_, serves)) if serves.image == origin.image => {
                Need::Load("its configuration has changed")
            }
            _ => Need::Load("its file has changed"),
        }
    }

    /// A version was made from this.
    pub(crate) fn succeeded(&self, number: u64, origin: Origin) {
        let rollback = self.slot.status().rollback;
        let mut inner = self.inner();
        if rollback.is_some_and(|rollback| rollback.from == number) {
            // It was too fast for us.
            inner.refused = Some(origin);
            return;
        }
        inner.versions.push((number, origin));
        let surplus = inner.versions.len().saturating_sub(REMEMBERED);
        inner.versions.drain(..surplus);
        inner.refused = None;
        inner.said = None;
    }

    /// No version could be made. Whether it is worth a line in the log: the same failure is told
    /// once. `origin` is `None` if there was nothing to read.
    pub(crate) fn failed(&self, origin: Option<Origin>, why: &str) -> bool {
        let mut inner = self.inner();
        inner.refused = origin;
        let is_new = inner.said.as_deref() != Some(why);
        inner.said = Some(why.to_owned());
        is_new
    }

    /// A version is gone, and what it was made from is not tried again.
    pub(crate) fn rolled_back(&self, number: u64) {
        let mut inner = self.inner();
        let bad = inner.versions.iter().position(|(version, _)| *version == number);
        if let Some(index) = bad {
            inner.refused = Some(inner.versions.remove(index).1);
        }
    }

    /// Notes which files a program has read that was loaded since this time.
    pub(crate) fn has_read(&self, files: &[PathBuf], since: SystemTime) {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = (since.as_secs() as i64, i64::from(since.subsec_nanos()));
        let as_read = |path: &PathBuf| {
            // What has changed meanwhile may have been read before: it is none that it was.
            let signature = Signature::of(path).ok();
            let is_sure = signature.is_none_or(|now| now.changed < since);
            (path.clone(), if is_sure { signature } else { Some(Signature::UNKNOWN) })
        };
        self.inner().files = files.iter().take(MOST_FILES).map(as_read).collect();
    }

    /// Whether there are any.
    pub(crate) fn has_files(&self) -> bool {
        !self.inner().files.is_empty()
    }

    /// These files, as they were.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Option<Signature>)> {
        self.inner().files.clone()
    }

    /// Files have changed. Whether the program has read one of them.
    pub(crate) fn look_at(&self, changed: &HashSet<&PathBuf>) -> bool {
        let mut inner = self.inner();
        let concerns = inner.files.iter().any(|(path, _)| changed.contains(path));
        inner.is_stale |= concerns;
        concerns
    }

    /// Notes what the file was like when it was read.
    pub(crate) fn read_at(&self, signature: Option<Signature>) {
        self.inner().signature = signature;
    }

    /// What the file was like when it was last read; `None` if it never was.
    pub(crate) fn signature(&self) -> Option<Signature> {
        self.inner().signature
    }

    /// Whether the program may be let go of: it can be had again as it is.
    pub(crate) fn may_retire(&self) -> Option<std::time::Duration> {
        let inner = self.inner();
        let tenant = &inner.tenant;
        let can_come_back = inner.said.is_none() && inner.refused.is_none();
        if tenant.load == Load::FirstUse && tenant.isolation != Isolation::None && can_come_back {
            tenant.cold_after
        } else {
            None
        }
    }

    /// Whether its file says something about it now: nobody has asked for what is empty.
    pub(crate) fn is_wanted(&self) -> bool {
        self.slot.status().state != SlotState::Empty
    }

    /// Asks for a job; `true` if it has to be put in line.
    pub(crate) fn ask(&self) -> bool {
        let mut inner = self.inner();
        let before = inner.job;
        inner.job = match before {
            Job::None | Job::Queued => Job::Queued,
            Job::Running { .. } => Job::Running { again: true },
        };
        before == Job::None
    }

    pub(crate) fn begin(&self) {
        self.inner().job = Job::Running { again: false };
    }

    /// Ends a job; `true` if there has to be another one.
    pub(crate) fn end(&self) -> bool {
        let mut inner = self.inner();
        let again = inner.job == Job::Running { again: true };
        inner.job = if again { Job::Running { again: false } } else { Job::None };
        again
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    /// The tenant's program.
    pub(crate) fn spec(&self) -> Option<&Spec> {
        match &self.tenant.serves {
            Serves::Program(spec) => Some(spec),
            // An application is loaded once, before anything is served.
            Serves::Application(_) | Serves::Respond(_) => None,
        }
    }
}
