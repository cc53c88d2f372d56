//! JSON that is read when it is needed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use std::fmt;
use std::sync::Arc;

/// JSON text, as of the steps of a job: their values in memory would take about ten times as much, and there may be 100,000.
#[derive(Clone)]
pub struct JsonText(Arc<RawValue>);

impl JsonText {
    /// Writes a value.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        to_raw_value(value).map(|text| Self(text.into()))
    }

    /// Takes a text that is written already. Error: it is no JSON.
    pub fn of_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(|text| Self(text.into()))
    }

    /// Returns a text in place of one that its reader may not see.
    pub fn hidden() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Returns a part, which was read from this text by borrowing.
    pub fn part(&self, part: &RawValue) -> Option<JsonPart> {
        let start = (part.get().as_ptr() as usize).checked_sub(self.text().as_ptr() as usize)?;
        let end = start.checked_add(part.get().len())?;
        self.text().get(start..end)?;
        Some(JsonPart { whole: self.clone(), start: start.try_into().ok()?, end: end.try_into().ok()? })
    }

    /// Reads it.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text())
    }
}

/// A value in a JSON text, which shares the memory of the whole.
#[derive(Clone, Debug)]
pub struct JsonPart {
    whole: JsonText,
    start: u32,
    end: u32,
}

impl JsonPart {
    /// Reads it.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        let text = self.whole.text().get(self.start as usize..self.end as usize);
        serde_json::from_str(text.unwrap_or_default())
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for JsonText {}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::JsonText;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    #[test]
    fn parts_are_values_of_the_whole() {
        let text = JsonText::of_text(r#"{ "a": [1, 2], "b": "x" }"#.to_string()).unwrap();
        let parts: BTreeMap<String, &RawValue> = text.read().unwrap();
        let part = text.part(parts["a"]).unwrap();
        assert_eq!(part.read::<Vec<u32>>().unwrap(), [1, 2]);
        assert!(part.read::<String>().is_err());
        let other = JsonText::of_text("[1, 2]".to_string()).unwrap();
        assert!(text.part(other.read().unwrap()).is_none() && other.part(parts["b"]).is_none());
    }

    #[test]
    fn texts_stay_as_they_are_written() {
        let text = r#"{"steps":[{"b":1,"a":"\u00e9"}]}"#;
        let spec: JsonText = serde_json::from_str(text).unwrap();
        assert_eq!(spec, JsonText::of_text(text.to_string()).unwrap());
        assert_eq!((spec.text(), serde_json::to_string(&spec).unwrap().as_str()), (text, text));
        let value = json!({ "steps": [{ "a": "é", "b": 1 }] });
        assert_eq!(spec.read::<Value>().unwrap(), value);
        // The same by way of values.
        assert_eq!(serde_json::to_value(&spec).unwrap(), value);
        assert_eq!(
            serde_json::from_value::<JsonText>(value.clone()).unwrap().read::<Value>().unwrap(),
            value
        );
        assert_eq!(JsonText::hidden().text(), "null");
        assert!(JsonText::of_text("{".to_string()).is_err());
    }
}
