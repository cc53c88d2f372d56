//! The checked-in description of the control port, and messages made up by it: right ones, and those that it rules out.

use crate::{Random, package_path};
use serde_json::{Map, Number, Value, json};

/// Beyond this depth only what must be there is made.
const DEPTH_MAX: u32 = 6;
/// Ends of ranges, and what lies just beyond them.
const NUMBERS: &[&str] = &[
    "-1",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "-2147483648",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
];
/// Numbers as only a bad client would write them.
const STRANGE_NUMBERS: &[&str] =
    &["1.5", "-0", "1e400", "-1e-400", "18446744073709551616", "00", "0x10", "NaN", "1e3", "+1"];
/// None of them is a program or a file that anybody has.
const TEXTS: &[&str] = &[
    "",
    "a",
    "select 1",
    "select * from jobs; drop table jobs",
    "'; drop table jobs; --",
    "../../../../etc/passwd",
    "a/../../b",
    "%2e%2e%2f",
    "a\0b",
    "\u{feff}\u{202e}",
    "\u{1f986}",
    "a\r\nx-injected: 1",
    "\"} 1\n",
    "-1",
    "null",
    "{}",
];

/// A route: a method on a path.
#[derive(Clone, Debug)]
pub struct Route {
    /// In upper case.
    pub method: String,
    /// With its parameters in braces.
    pub path: String,
    /// Names of those that stand in the query.
    pub in_query: Vec<String>,
    /// Content type and schema.
    pub body: Option<(String, Value)>,
}

/// The document in `docs/openapi.json`.
pub struct Document {
    json: Value,
}

impl Document {
    /// Reads it.
    pub fn read() -> Document {
        let path = package_path("../docs/openapi.json");
        let text = std::fs::read_to_string(path).expect("docs/openapi.json can be read");
        Document { json: serde_json::from_str(&text).expect("docs/openapi.json is JSON") }
    }

    /// All routes, in the order of their paths.
    pub fn routes(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        for (path, methods) in self.json["paths"].as_object().expect("paths") {
            for (method, described) in methods.as_object().expect("methods") {
                let parameters = described["parameters"].as_array().into_iter().flatten();
                let in_query = parameters.filter(|parameter| parameter["in"] == "query");
                let in_query = in_query.filter_map(|parameter| parameter["name"].as_str());
                let content = described["requestBody"]["content"].as_object();
                let content = content.and_then(|content| content.iter().next());
                routes.push(Route {
                    method: method.to_uppercase(),
                    path: path.clone(),
                    in_query: in_query.map(str::to_string).collect(),
                    body: content.map(|(kind, body)| (kind.clone(), body["schema"].clone())),
                });
            }
        }
        routes
    }

    /// A message that a schema admits. Numbers and texts are of any kind, also such as nobody would send.
    pub fn message(&self, schema: &Value, random: &mut Random) -> Value {
        Maker { document: self, random }.value(schema, "", 0)
    }

    /// The same by the name of the schema, and of the kind among those that it may be.
    pub fn message_of_kind(&self, name: &str, kind: &str, random: &mut Random) -> Value {
        let (_, schema) = self.named(name);
        let choices = schema["oneOf"].as_array().unwrap_or_else(|| panic!("{name} is of one kind"));
        let chosen = choices.iter().find(|choice| !choice["properties"][kind].is_null());
        let chosen = chosen.unwrap_or_else(|| panic!("{name} is never a {kind}"));
        Maker { document: self, random }.value(chosen, "", 0)
    }

    fn named(&self, reference: &str) -> (&str, &Value) {
        let name = reference.rsplit('/').next().expect("a reference has a name");
        let name = self.json["components"]["schemas"].as_object().and_then(|all| all.get_key_value(name));
        let (name, schema) = name.unwrap_or_else(|| panic!("{reference} is not in the document"));
        (name, schema)
    }
}

struct Maker<'a> {
    document: &'a Document,
    random: &'a mut Random,
}

impl Maker<'_> {
    /// `name` is that of the schema or of the field.
    fn value(&mut self, schema: &Value, name: &str, depth: u32) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let (name, schema) = self.document.named(reference);
            return self.value(schema, name, depth);
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let nothing = choices.iter().find(|choice| choice["type"] == "null");
            let chosen = match nothing {
                Some(nothing) if depth > DEPTH_MAX || self.random.chance(50) => nothing,
                _ => self.random.one_of(choices),
            };
            return self.value(chosen, name, depth);
        }
        if let Some(words) = schema["enum"].as_array() {
            return self.random.one_of(words).clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.random.one_of(kinds).clone(),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("object") => self.object(schema, depth),
            Some("array") => self.array(schema, name, depth),
            Some("string") => self.text(name),
            Some("integer") => number(self.integer()),
            Some("number") => json!(f64::from(self.random.below(1_000) as u32) / 8.0),
            Some("boolean") => Value::from(self.random.chance(50)),
            _ => Value::Null,
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Value {
        let mut object = Map::new();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let is_needed = required.contains(&name.as_str());
            if is_needed || (depth <= DEPTH_MAX && self.random.chance(40)) {
                object.insert(name.clone(), self.value(field, name, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() && self.random.chance(50) {
            let value = self.value(&schema["additionalProperties"], "", depth + 1);
            object.insert("a".to_string(), value);
        }
        Value::Object(object)
    }

    fn array(&mut self, schema: &Value, name: &str, depth: u32) -> Value {
        if let Some(places) = schema["prefixItems"].as_array() {
            return places.iter().map(|place| self.value(place, name, depth + 1)).collect();
        }
        let count = if depth > DEPTH_MAX { 0 } else { self.random.below(3) };
        (0..count).map(|_| self.value(&schema["items"], name, depth + 1)).collect()
    }

    fn text(&mut self, name: &str) -> Value {
        let hex = |bytes: Vec<u8>| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        Value::from(match name {
            "ContentHash" => hex(self.random.bytes(32)),
            "hash_sum" | "start" => hex(self.random.bytes(16)),
            "KeyBytes" => {
                let count = self.random.below(8) as usize;
                hex(self.random.bytes(count))
            }
            _ if self.random.chance(2) => "x".repeat(70_000),
            _ => self.random.one_of(TEXTS).to_string(),
        })
    }

    fn integer(&mut self) -> String {
        match self.random.chance(70) {
            true => self.random.below(4).to_string(),
            false => self.random.one_of(NUMBERS).to_string(),
        }
    }
}

/// A number that JSON can hold.
fn number(text: String) -> Value {
    text.parse::<Number>().map(Value::Number).expect("the list has numbers only")
}

/// The bytes of a message of which something is wrong.
pub fn spoiled(message: &Value, random: &mut Random) -> Vec<u8> {
    let mut message = message.clone();
    for _ in 0..1 + random.below(3) {
        spoil_value(&mut message, random);
    }
    let mut bytes = message.to_string().into_bytes();
    match random.below(12) {
        0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        1 if !bytes.is_empty() => {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next_bits() as u8;
        }
        2 => bytes.extend_from_slice(b" {}"),
        3 => bytes.extend_from_slice(&[0xff, 0xfe, 0x00]),
        4 => bytes.splice(0..0, *b"\xef\xbb\xbf").for_each(drop),
        5 => bytes = nested(random),
        6 => bytes.clear(),
        7 => bytes = random.bytes(200),
        8 => {
            bytes = String::from_utf8_lossy(&bytes)
                .replacen('0', random.one_of::<&str>(STRANGE_NUMBERS), 1)
                .into()
        }
        _ => {}
    }
    bytes
}

/// Far deeper than any message.
fn nested(random: &mut Random) -> Vec<u8> {
    let depth = 100_000;
    match random.below(3) {
        0 => "[".repeat(depth).into(),
        1 => ("[".repeat(depth) + &"]".repeat(depth)).into(),
        _ => "{\"spec\":".repeat(depth).into(),
    }
}

/// Changes one value somewhere below.
fn spoil_value(value: &mut Value, random: &mut Random) {
    let deeper = random.chance(80);
    match value {
        Value::Object(fields) if deeper && !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = random.one_of(&names);
            match random.below(8) {
                0 => drop(fields.remove(name)),
                1 => drop(fields.insert("unknown".to_string(), json!(1))),
                _ => spoil_value(fields.get_mut(name).expect("it is a name of its own"), random),
            }
        }
        Value::Array(items) if deeper && !items.is_empty() => {
            let at = random.below(items.len() as u64) as usize;
            match random.below(6) {
                0 => drop(items.remove(at)),
                1 => items.extend(vec![items[at].clone(); 2_000]),
                _ => spoil_value(&mut items[at], random),
            }
        }
        _ => *value = anything(random),
    }
}

fn anything(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(true),
        4 => json!("x".repeat(300_000)),
        5 => Value::from(*random.one_of(TEXTS)),
        6 => json!(0.5),
        _ => number(random.one_of(NUMBERS).to_string()),
    }
}
