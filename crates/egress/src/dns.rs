//! DNS messages (RFC 1035): the queries of guests, and the answers to them.

use std::net::IpAddr;

use domain::{
    base::{
        Message, MessageBuilder, Ttl,
        iana::{Class, Opcode, Rcode, Rtype},
    },
    rdata::{A, Aaaa},
};
use sandtide_engine::host_name;

/// For how long a guest may take an answer to be true. An answer is what the host's resolver says at
/// this moment; few sandboxes live longer.
const TIME_TO_LIVE: Ttl = Ttl::from_secs(30);

/// The addresses of one answer: so that it fits into 512 bytes, and is never cut.
const MOST_ADDRESSES: usize = 8;

/// A query of a guest.
pub(crate) struct Query<'a> {
    message: &'a Message<[u8]>,
    /// In lower case, without the final dot; `None` if no host can have it.
    pub(crate) name: Option<String>,
    pub(crate) wants: Wants,
}

/// What a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    V4,
    V6,
    /// What is not known here: there is none.
    Other,
}

/// What is to be said of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Addresses(Vec<IpAddr>),
    NoSuchName,
    Failed,
}

impl<'a> Query<'a> {
    /// `None` if it is no query, and has no answer.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let message = Message::from_slice(bytes).ok()?;
        if message.header().qr() || message.header().opcode() != Opcode::QUERY {
            return None;
        }
        let question = message.sole_question().ok()?;
        if question.qclass() != Class::IN {
            return None;
        }
        let name = host_name(&question.qname().to_string());
        let wants = match question.qtype() {
            Rtype::A => Wants::V4,
            Rtype::AAAA => Wants::V6,
            _ => Wants::Other,
        };
        Some(Self { message, name, wants })
    }

    /// The message that answers it; `None` if there is no room for it.
    pub(crate) fn answer(&self, answer: &Answer) -> Option<Vec<u8>> {
        let code = match answer {
            Answer::Addresses(_) => Rcode::NOERROR,
            Answer::NoSuchName => Rcode::NXDOMAIN,
            Answer::Failed => Rcode::SERVFAIL,
        };
        let question = self.message.sole_question().ok()?;
        let mut builder = MessageBuilder::new_vec().start_answer(self.message, code).ok()?;
        builder.header_mut().set_ra(true);
        if let Answer::Addresses(addresses) = answer {
            let wanted = addresses.iter().filter(|ip| match self.wants {
                Wants::V4 => ip.is_ipv4(),
                Wants::V6 => ip.is_ipv6(),
                Wants::Other => false,
            });
            for ip in wanted.take(MOST_ADDRESSES) {
                let name = question.qname();
                match ip {
                    IpAddr::V4(ip) => builder.push((name, TIME_TO_LIVE, A::new(*ip))),
                    IpAddr::V6(ip) => builder.push((name, TIME_TO_LIVE, Aaaa::new(*ip))),
                }
                .ok()?;
            }
        }
        Some(builder.finish())
    }
}

/// Answers a message that a guest sends to the resolver as if the name had these addresses: what is
/// done with the bytes of guests, for fuzzing.
pub fn answer_query(bytes: &[u8], addresses: &[IpAddr]) -> Option<Vec<u8>> {
    Query::parse(bytes)?.answer(&Answer::Addresses(addresses.to_vec()))
}

#[cfg(test)]
mod tests;
