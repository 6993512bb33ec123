//! `[server.translation]`: what translated code may take in the whole server, and where it is kept.

use std::{fmt, path::PathBuf};

use crate::{
    kind::{integer, parsed, size},
    problem::Mistake,
    section::{Exceeded, Section, section},
    value::Value,
};

section! {
    /// Translated code in the whole server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Translation / TranslationLayer {
        /// where translations are kept for the next start: a directory that nobody but the server's
        /// user can write; `off`; or `auto`, which is `translations` in `$CACHE_DIRECTORY` (systemd), in
        /// `$XDG_CACHE_HOME/sandtide` or in `~/.cache/sandtide`, whichever is there first
        cache: TranslationCache = TranslationCache::Auto,
            parsed("`\"auto\"`, `\"off\"` or path", cache);
        /// files in that directory; those that were not used for longest make room
        cache_size: u64 = 1 << 30, size(1 << 20..=1 << 40);
        /// memory for translated code, of all programs together
        code_memory: u64 = 1 << 30, size(1 << 20..=1 << 40), exceeded: Exceeded {
            answer: "nothing; what has no room is interpreted",
            error: "",
            log: "`partly translated`, or `not translated`, with the limit",
        };
        /// large programs that are translated at a time while they run already, on threads with little
        /// priority
        threads: u32 = 1, integer(1..=64);
    }
}

impl Default for Translation {
    fn default() -> Self {
        Self::resolve(TranslationLayer::default())
    }
}

/// Where translations are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TranslationCache {
    /// `"auto"`: where the user's caches are.
    Auto,
    /// `"off"`: nowhere.
    Off,
    /// In this directory.
    Directory(PathBuf),
}

impl fmt::Display for TranslationCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Directory(path) => write!(f, "{}", path.display()),
        }
    }
}

fn cache(value: &Value<'_>) -> Result<TranslationCache, Mistake> {
    Ok(match &*value.string()? {
        "auto" => TranslationCache::Auto,
        "off" => TranslationCache::Off,
        _ => TranslationCache::Directory(value.path()?),
    })
}
