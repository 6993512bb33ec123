//! What has become of the translation of a program's code to code of the host.

use std::time::Duration;

/// How a program's code runs, and what it has cost to translate it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Translation {
    /// How its code runs.
    pub state: TranslationState,
    /// Functions of the host that there are for it.
    pub functions: u64,
    /// Functions that were found and could not be translated: they are interpreted.
    pub left: u64,
    /// Memory for them and their tables, in bytes; 0 if another program had them before.
    pub bytes: u64,
    /// Processor time that the translation took; of reading it, if it was in the cache.
    pub time: Duration,
    /// Whether the program ran before its translation was ready.
    pub in_background: bool,
    /// Why not all of it is translated.
    pub shortfall: Option<Shortfall>,
    /// What the cache had of it.
    pub cache: CacheUse,
    /// Why it could not be put into the cache.
    pub unkept: Option<String>,
}

/// How a program's code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TranslationState {
    /// All of it is interpreted.
    #[default]
    Interpreted,
    /// It is interpreted until its translation is ready.
    Waiting,
    /// Some of it is interpreted: it was over a limit.
    Partly,
    /// It is translated as far as it was found.
    Translated,
}

impl TranslationState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Interpreted, Self::Waiting, Self::Partly, Self::Translated];

    /// The name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interpreted => "interpreted",
            Self::Waiting => "waiting",
            Self::Partly => "partly",
            Self::Translated => "translated",
        }
    }
}

/// Why code is interpreted that could have been translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall {
    /// A short name, the same for all programs.
    pub reason: ShortfallReason,
    /// What happened, with the limit if it was one.
    pub what: String,
    /// What to do about it, if there is something to do.
    pub hint: Option<&'static str>,
}

/// The kinds of [`Shortfall`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortfallReason {
    /// `limits.translate_time`.
    Time,
    /// `limits.translate_size`.
    Size,
    /// The engine's own bound on the length of programs.
    Length,
    /// The room for translated code in the whole server.
    Room,
    /// Too many programs wait for their translation.
    Queue,
    /// The engine cannot: on this host, or at all.
    Failed,
}

impl ShortfallReason {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 6] =
        [Self::Time, Self::Size, Self::Length, Self::Room, Self::Queue, Self::Failed];

    /// The name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Size => "size",
            Self::Length => "length",
            Self::Room => "room",
            Self::Queue => "queue",
            Self::Failed => "failed",
        }
    }
}

/// What the cache of translations had of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CacheUse {
    /// It was not asked.
    #[default]
    None,
    /// The translation.
    Hit,
    /// It was not asked, since another program of the same file runs the translation, which takes
    /// no memory again.
    Shared,
    /// Nothing.
    Miss,
    /// A file that is not what was written there. It is written again.
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
}
