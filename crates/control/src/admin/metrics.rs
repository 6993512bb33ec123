//! `/metrics`: the table of all metrics, and their text.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use sandtide_runtime::{DURATION_BOUNDS, FAULT_KINDS, Refused, Totals};

use super::{process::Process, series::Shown};
use crate::tally::{Deed, Tally};

/// A metric: its name without the suffix of its type, what it is for, and where it comes from.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) source: Source,
}

/// Where the value of a metric comes from.
pub(super) enum Source {
    /// A counter of each tenant.
    Count(fn(&Totals) -> u64),
    /// A counter of each tenant, in nanoseconds; shown in seconds.
    Time(fn(&Totals) -> u64),
    /// Counters of each tenant, by another label. Those that are zero are not shown.
    Counts(&'static str, fn() -> Vec<&'static str>, fn(&Totals) -> &[u64]),
    /// What each tenant has at a time.
    Level(fn(&Totals) -> u64),
    /// A histogram of each tenant.
    Durations,
    /// A counter of the server.
    ServerCount(fn(&Server) -> f64),
    /// Counters of the server, by a label.
    ServerCounts(&'static str, fn(&Server) -> Vec<(String, u64)>),
    /// What the server has at a time.
    ServerLevel(fn(&Server) -> f64),
    /// What the server has at a time, by a label.
    ServerLevels(&'static str, fn(&Server) -> Vec<(String, f64)>),
    /// The version.
    Build,
}

/// What is known of the server at one time.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) process: Process,
    pub(super) tally: Arc<Tally>,
    /// Of the versions that serve.
    pub(super) translated_bytes: u64,
    /// Tenants by state.
    pub(super) tenants: Vec<(&'static str, usize)>,
    /// Seconds since each reactor's event loop turned, by the reactor's index.
    pub(super) silences: Vec<(usize, f64)>,
    pub(super) access_log_lines: u64,
    pub(super) access_log_lines_dropped: u64,
}

/// All metrics, in the order of the page.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "sandtide_responses",
        help: "Answers by the class of their status, those of the host included",
        source: Source::Counts("status", || vec!["2xx", "3xx", "4xx", "5xx"], |t| &t.statuses),
    },
    Metric {
        name: "sandtide_exchanges",
        help: "Exchanges that ran in a sandbox and have ended",
        source: Source::Count(|t| t.exchanges),
    },
    Metric {
        name: "sandtide_fixed_responses",
        help: "Requests answered with a fixed response",
        source: Source::Count(|t| t.fixed),
    },
    Metric {
        name: "sandtide_faults",
        help: "Exchanges that the guest ended badly, by the kind of the fault",
        source: Source::Counts("kind", || FAULT_KINDS.to_vec(), |t| &t.faults),
    },
    Metric {
        name: "sandtide_refused",
        help: "Requests turned away before they reached a sandbox, by the reason",
        source: Source::Counts(
            "reason",
            || Refused::ALL.map(Refused::name).to_vec(),
            |t| &t.refused,
        ),
    },
    Metric {
        name: "sandtide_clients_gone",
        help: "Exchanges that the client left before their end",
        source: Source::Count(|t| t.clients_gone),
    },
    Metric {
        name: "sandtide_engine_failures",
        help: "Exchanges that ended by a failure of the server's own, panics included",
        source: Source::Count(|t| t.engine_failures),
    },
    Metric {
        name: "sandtide_engine_panics",
        help: "Panics of an engine, each of which ended one exchange",
        source: Source::Count(|t| t.panics),
    },
    Metric {
        name: "sandtide_failed_resets",
        help: "Sandboxes destroyed because they could not be reset",
        source: Source::Count(|t| t.failed_resets),
    },
    Metric {
        name: "sandtide_resets_verified",
        help: "Resets after which the sandbox was compared with its snapshot",
        source: Source::Count(|t| t.verified_resets),
    },
    Metric {
        name: "sandtide_reset_mismatches",
        help: "Sandboxes destroyed because they were not what their snapshot is",
        source: Source::Count(|t| t.reset_mismatches),
    },
    Metric {
        name: "sandtide_sandboxes_made",
        help: "Sandboxes made from a snapshot",
        source: Source::Count(|t| t.spawned),
    },
    Metric {
        name: "sandtide_instructions",
        help: "Guest instructions executed for exchanges",
        source: Source::Count(|t| t.instructions),
    },
    Metric {
        name: "sandtide_pages_written",
        help: "Pages of 4 KiB that exchanges wrote, each counted once an exchange",
        source: Source::Count(|t| t.pages_written),
    },
    Metric {
        name: "sandtide_guest_calls",
        help: "System calls and guest calls of exchanges",
        source: Source::Count(|t| t.calls),
    },
    Metric {
        name: "sandtide_guest_exits",
        help: "How often the virtual machines of exchanges were left, for a call or otherwise",
        source: Source::Count(|t| t.exits),
    },
    Metric {
        name: "sandtide_egress_connections",
        help: "Connections that exchanges made to the outside",
        source: Source::Count(|t| t.egress_connections),
    },
    Metric {
        name: "sandtide_egress_denied",
        help: "Connections to the outside that were refused because the tenant may not have them",
        source: Source::Count(|t| t.egress_denied),
    },
    Metric {
        name: "sandtide_egress_sent_bytes",
        help: "Bytes that exchanges sent to the outside",
        source: Source::Count(|t| t.egress_sent),
    },
    Metric {
        name: "sandtide_egress_received_bytes",
        help: "Bytes that came to exchanges from the outside",
        source: Source::Count(|t| t.egress_received),
    },
    Metric {
        name: "sandtide_cpu_seconds",
        help: "Time in which guests ran",
        source: Source::Time(|t| t.cpu_ns),
    },
    Metric {
        name: "sandtide_queue_seconds",
        help: "Time for which exchanges waited for admission",
        source: Source::Time(|t| t.queue_ns),
    },
    Metric {
        name: "sandtide_run_seconds",
        help: "Time from the admission of exchanges to the end of the guest's work",
        source: Source::Time(|t| t.run_ns),
    },
    Metric {
        name: "sandtide_request_body_bytes",
        help: "Bytes of request bodies that guests read",
        source: Source::Count(|t| t.bytes_in),
    },
    Metric {
        name: "sandtide_response_body_bytes",
        help: "Bytes of response bodies that guests wrote",
        source: Source::Count(|t| t.bytes_out),
    },
    Metric {
        name: "sandtide_duration_seconds",
        help: "Exchanges by their time from arrival to the end of the guest's work",
        source: Source::Durations,
    },
    Metric {
        name: "sandtide_sandboxes_idle",
        help: "Sandboxes that wait for an exchange, as of the last second",
        source: Source::Level(|t| t.idle),
    },
    Metric {
        name: "sandtide_sandboxes_held",
        help: "Sandboxes that connections hold between their exchanges, as of the last second",
        source: Source::Level(|t| t.held),
    },
    Metric {
        name: "sandtide_sandboxes_resident_bytes",
        help: "Memory that only idle sandboxes hold, as of the last second",
        source: Source::Level(|t| t.resident_bytes),
    },
    Metric {
        name: "sandtide_exchanges_running",
        help: "Exchanges that hold a sandbox, as of the last second",
        source: Source::Level(|t| t.busy),
    },
    Metric {
        name: "sandtide_exchanges_waiting",
        help: "Exchanges that wait for admission or for their program, as of the last second",
        source: Source::Level(|t| t.waiting),
    },
    Metric {
        name: "sandtide_programs_loaded",
        help: "Versions of programs that were loaded and took over",
        source: Source::ServerCount(|server| server.tally.of(Deed::Loaded) as f64),
    },
    Metric {
        name: "sandtide_programs_not_loaded",
        help: "Versions of programs that could not be made, or were not fit to serve",
        source: Source::ServerCount(|server| server.tally.of(Deed::NotLoaded) as f64),
    },
    Metric {
        name: "sandtide_programs_retired",
        help: "Programs let go of because nobody used them",
        source: Source::ServerCount(|server| server.tally.of(Deed::Retired) as f64),
    },
    Metric {
        name: "sandtide_translations",
        help: "Versions of programs whose code was translated as far as it was found",
        source: Source::ServerCount(|server| server.tally.of(Deed::Translated) as f64),
    },
    Metric {
        name: "sandtide_interpreted",
        help: "Versions of programs that are interpreted wholly or in part, by the limit that was reached",
        source: Source::ServerCounts("limit", |server| {
            let all = server.tally.shortfalls();
            all.map(|(reason, n)| (reason.as_str().to_owned(), n)).collect()
        }),
    },
    Metric {
        name: "sandtide_translation_cache_hits",
        help: "Translations that were taken from the cache",
        source: Source::ServerCount(|server| server.tally.of(Deed::CacheHit) as f64),
    },
    Metric {
        name: "sandtide_translation_cache_misses",
        help: "Translations that were looked for in the cache in vain",
        source: Source::ServerCount(|server| server.tally.of(Deed::CacheMiss) as f64),
    },
    Metric {
        name: "sandtide_translation_cache_damaged",
        help: "Files of the cache that were damaged or none of the server's, and were made again",
        source: Source::ServerCount(|server| server.tally.of(Deed::CacheDamaged) as f64),
    },
    Metric {
        name: "sandtide_translated_bytes",
        help: "Memory for translated code and its tables, of the versions that serve",
        source: Source::ServerLevel(|server| server.translated_bytes as f64),
    },
    Metric {
        name: "sandtide_rollbacks",
        help: "Versions replaced by the one before, because too many of their first exchanges faulted",
        source: Source::ServerCount(|server| server.tally.of(Deed::RolledBack) as f64),
    },
    Metric {
        name: "sandtide_reloads",
        help: "Times that the configuration was read again and taken over",
        source: Source::ServerCount(|server| server.tally.of(Deed::Configured) as f64),
    },
    Metric {
        name: "sandtide_failed_reloads",
        help: "Times that the configuration was read again and was wrong",
        source: Source::ServerCount(|server| server.tally.of(Deed::NotConfigured) as f64),
    },
    Metric {
        name: "sandtide_tenants",
        help: "Tenants by the state of their program",
        source: Source::ServerLevels("state", |server| {
            server.tenants.iter().map(|(state, n)| ((*state).to_owned(), *n as f64)).collect()
        }),
    },
    Metric {
        name: "sandtide_reactor_silence_seconds",
        help: "Time since the event loop of a reactor turned; about a second at most",
        source: Source::ServerLevels("reactor", |server| {
            server.silences.iter().map(|(index, silence)| (index.to_string(), *silence)).collect()
        }),
    },
    Metric {
        name: "sandtide_access_log_lines",
        help: "Lines written to the access log",
        source: Source::ServerCount(|server| server.access_log_lines as f64),
    },
    Metric {
        name: "sandtide_access_log_lines_dropped",
        help: "Lines of the access log that were lost: it is too slow, or the disk is full",
        source: Source::ServerCount(|server| server.access_log_lines_dropped as f64),
    },
    Metric { name: "sandtide_build", help: "The server's version", source: Source::Build },
    Metric {
        name: "process_cpu_seconds",
        help: "Processor time of the server, in user and system mode",
        source: Source::ServerCount(|server| server.process.cpu_seconds),
    },
    Metric {
        name: "process_resident_memory_bytes",
        help: "Resident memory of the server",
        source: Source::ServerLevel(|server| server.process.resident_bytes as f64),
    },
    Metric {
        name: "process_virtual_memory_bytes",
        help: "Address space of the server; 4 GiB and more for each sandbox, nearly all reserved only",
        source: Source::ServerLevel(|server| server.process.virtual_bytes as f64),
    },
    Metric {
        name: "process_open_fds",
        help: "Open file descriptors of the server",
        source: Source::ServerLevel(|server| server.process.open_fds as f64),
    },
    Metric {
        name: "process_max_fds",
        help: "How many file descriptors the server may open",
        source: Source::ServerLevel(|server| server.process.max_fds as f64),
    },
    Metric {
        name: "process_threads",
        help: "Threads of the server",
        source: Source::ServerLevel(|server| server.process.threads as f64),
    },
    Metric {
        name: "process_start_time_seconds",
        help: "When the server was started, in seconds since 1970",
        source: Source::ServerLevel(|server| server.process.start_time),
    },
];

impl Metric {
    /// The type, as the text names it.
    pub(super) fn kind(&self) -> MetricType {
        match self.source {
            Source::Count(_) | Source::Time(_) | Source::Counts(..) => MetricType::Counter,
            Source::ServerCount(_) | Source::ServerCounts(..) => MetricType::Counter,
            Source::Level(_) | Source::ServerLevel(_) | Source::ServerLevels(..) => {
                MetricType::Gauge
            }
            Source::Durations => MetricType::Histogram,
            Source::Build => MetricType::Info,
        }
    }

    /// The labels, in their order.
    #[cfg(test)]
    pub(super) fn labels(&self) -> Vec<&'static str> {
        match self.source {
            Source::Count(_) | Source::Time(_) | Source::Level(_) => vec!["tenant"],
            Source::Counts(label, ..) => vec!["tenant", label],
            Source::Durations => vec!["tenant", "le"],
            Source::ServerCount(_) | Source::ServerLevel(_) => vec![],
            Source::ServerLevels(label, _) | Source::ServerCounts(label, _) => vec![label],
            Source::Build => vec!["version"],
        }
    }
}

/// All values at one time.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) shown: Shown,
    pub(super) server: Server,
}

impl Page {
    /// Tenants with something to show, and the others together.
    fn tenants(&self) -> impl Iterator<Item = (&str, &Totals)> {
        let others = Some(("_other", &self.shown.others));
        let others = others.filter(|(_, totals)| **totals != Totals::default());
        self.shown.tenants.iter().map(|(name, totals)| (&**name, totals)).chain(others)
    }

    fn encode_metric(&self, metric: &Metric, mut to: MetricEncoder<'_>) -> fmt::Result {
        match metric.source {
            Source::Count(read) => self.tenants().try_for_each(|(tenant, totals)| {
                count(&mut to.encode_family(&[("tenant", tenant)])?, read(totals))
            }),
            Source::Time(read) => self.tenants().try_for_each(|(tenant, totals)| {
                let seconds = read(totals) as f64 / 1e9;
                count(&mut to.encode_family(&[("tenant", tenant)])?, seconds)
            }),
            Source::Counts(label, names, read) => {
                self.tenants().try_for_each(|(tenant, totals)| {
                    let some =
                        names().into_iter().zip(read(totals)).filter(|(_, count)| **count > 0);
                    some.into_iter().try_for_each(|(name, n)| {
                        count(&mut to.encode_family(&[("tenant", tenant), (label, name)])?, *n)
                    })
                })
            }
            Source::Level(read) => self.tenants().try_for_each(|(tenant, totals)| {
                to.encode_family(&[("tenant", tenant)])?.encode_gauge(&(read(totals) as f64))
            }),
            Source::Durations => self.tenants().try_for_each(|(tenant, totals)| {
                let bounds = DURATION_BOUNDS.iter().map(|bound| bound.as_secs_f64());
                let bounds = bounds.chain([f64::MAX]);
                let buckets: Vec<_> = bounds.zip(totals.durations).collect();
                let sum = totals.duration_ns as f64 / 1e9;
                let labels = [("tenant", tenant)];
                let mut to = to.encode_family(&labels)?;
                to.encode_histogram::<NoLabelSet>(sum, totals.exchanges, &buckets, None)
            }),
            Source::ServerCount(read) => count(&mut to, read(&self.server)),
            Source::ServerCounts(label, read) => {
                read(&self.server).into_iter().try_for_each(|(name, n)| {
                    count(&mut to.encode_family(&[(label, name.as_str())])?, n)
                })
            }
            Source::ServerLevel(read) => to.encode_gauge(&read(&self.server)),
            Source::ServerLevels(label, read) => {
                read(&self.server).into_iter().try_for_each(|(name, level)| {
                    to.encode_family(&[(label, name.as_str())])?.encode_gauge(&level)
                })
            }
            Source::Build => to.encode_info(&[("version", env!("CARGO_PKG_VERSION"))]),
        }
    }
}

fn count<N: prometheus_client::encoding::EncodeCounterValue>(
    to: &mut MetricEncoder<'_>,
    value: N,
) -> fmt::Result {
    to.encode_counter::<NoLabelSet, N, u64>(&value, None)
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        METRICS.iter().try_for_each(|metric| {
            let to = encoder.encode_descriptor(metric.name, metric.help, None, metric.kind())?;
            self.encode_metric(metric, to)
        })
    }
}
