//! `respond`: a constant answer that needs no program.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value as Json, json};

use crate::{
    kind::{Kind, Shown, integer, parsed},
    problem::{Mistake, Mistakes, Placed, all},
    section::{Definitions, section},
    value::Value,
};

section! {
    /// A constant answer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Respond / RespondLayer {
        /// its status
        status: StatusCode = StatusCode::OK, Status;
        /// its headers. `content-length`, `transfer-encoding` and `connection` are the host's to write
        headers: HeaderMap = HeaderMap::new(), Headers;
        /// its body
        body: String = String::new(), parsed("string", |value| value.string().map(Into::into));
    }
}

/// Headers that say how a message is framed; the host writes them.
const FRAMING: [HeaderName; 3] =
    [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION];

/// A status that ends an exchange.
struct Status;

impl Kind for Status {
    type Value = StatusCode;

    fn read(&self, value: &Value<'_>) -> Result<StatusCode, Mistakes> {
        let number = integer::<u16>(200..=599).read(value)?;
        Ok(StatusCode::from_u16(number).map_err(|error| value.mistake(error))?)
    }

    fn describe(&self) -> String {
        integer::<u16>(200..=599).describe()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        integer::<u16>(200..=599).schema(definitions)
    }

    fn show(&self, value: &StatusCode) -> Shown {
        Shown::Value(json!(value.as_u16()))
    }
}

/// A table of names, each with its value or values.
struct Headers;

impl Kind for Headers {
    type Value = HeaderMap;

    fn read(&self, value: &Value<'_>) -> Result<HeaderMap, Mistakes> {
        let fields = all(value.entries()?.into_iter().map(field))?;
        Ok(fields.into_iter().flatten().collect())
    }

    fn describe(&self) -> String {
        "table, name to string or array of strings".to_owned()
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        let one = json!({ "type": "string" });
        let value = json!({ "anyOf": [one, { "type": "array", "items": one }] });
        json!({ "type": "object", "additionalProperties": value })
    }

    fn show(&self, _: &HeaderMap) -> Shown {
        Shown::Value(json!({}))
    }
}

/// A name with all its values.
fn field(
    (name, values): (Placed<String>, Value<'_>),
) -> Result<Vec<(HeaderName, HeaderValue)>, Mistakes> {
    let Placed { value: name, place } = name;
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        return Err(Mistake::new(place, format!("`{name}` is not a header name")).into());
    };
    if FRAMING.contains(&name) {
        let mistake = Mistake::new(place, format!("`{name}` cannot be set"));
        return Err(mistake.hint("leave it out: the host writes it").into());
    }
    all(values.one_or_more().into_iter().map(|element| {
        match HeaderValue::from_str(&element.string()?) {
            Ok(text) => Ok((name.clone(), text)),
            Err(_) => Err(element.mistake("is not a header value").into()),
        }
    }))
}
