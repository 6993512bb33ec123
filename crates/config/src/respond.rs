//! `respond`: a constant answer that needs no program.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use toml::Spanned;

use crate::{
    problem::{Mistake, Mistakes, all},
    reader::{Reader, Value},
};

/// A constant answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond {
    /// `status`: 200 to 599. Default 200.
    pub status: StatusCode,
    /// `headers`: name to value, or to an array of values. Default none.
    pub headers: HeaderMap,
    /// `body`: the text. Default empty.
    pub body: String,
}

/// Headers that say how a message is framed; the host writes them.
const FRAMING: [HeaderName; 3] =
    [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION];

pub(crate) fn read(mut table: Reader<'_>) -> Respond {
    let respond = Respond {
        status: table.read("status", status).unwrap_or(StatusCode::OK),
        headers: table.read("headers", headers).unwrap_or_default(),
        body: table.read("body", |value| value.string().map(str::to_owned)).unwrap_or_default(),
    };
    table.finish();
    respond
}

fn status(value: &Value<'_>) -> Result<StatusCode, Mistake> {
    let status = u16::try_from(value.integer(200..=599)?).unwrap_or_default();
    StatusCode::from_u16(status).map_err(|error| value.mistake(error))
}

fn headers(value: &Value<'_>) -> Result<HeaderMap, Mistakes> {
    let fields = all(value.entries()?.into_iter().map(field))?;
    Ok(fields.into_iter().flatten().collect())
}

/// A name with all its values.
fn field(
    (key, values): (Spanned<String>, Value<'_>),
) -> Result<Vec<(HeaderName, HeaderValue)>, Mistake> {
    let name = key.get_ref();
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        return Err(Mistake::new(key.span(), format!("`{name}` is not a header name")));
    };
    if FRAMING.contains(&name) {
        let mistake = Mistake::new(key.span(), format!("`{name}` cannot be set"));
        return Err(mistake.hint("leave it out: the host writes it"));
    }
    let read = |element: Value<'_>| match HeaderValue::from_str(element.string()?) {
        Ok(text) => Ok((name.clone(), text)),
        Err(_) => Err(element.mistake("is not a header value")),
    };
    values.one_or_more()?.into_iter().map(read).collect()
}
