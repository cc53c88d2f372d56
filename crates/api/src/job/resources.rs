//! Generic resources of nodes: a node declares amounts by name, as in `gpu=2`, and a program takes some of them while
//! it runs. The engine counts them and knows no more about them.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Maximum number of resources of a node, and of a job.
pub const RESOURCES_MAX: usize = 8;
/// Longest name of a resource, in bytes.
pub const RESOURCE_NAME_BYTES_MAX: usize = 32;
/// Largest amount of a resource.
pub const RESOURCE_AMOUNT_MAX: u32 = 1_000_000;
/// Beginning of the variables with the amounts that a program has.
const VARIABLE: &str = "SAILFISH_RESOURCE_";

/// Amounts of generic resources by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct GenericResources(BTreeMap<String, u32>);

/// A mistake in generic resources, which its user can fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    #[error("{text:?} is no resource: give NAME=AMOUNT, as in gpu=1")]
    NoAmount { text: String },
    #[error(
        "{name:?} is no name of a resource: give a letter, and after it letters, digits, _ and -, at most \
         {RESOURCE_NAME_BYTES_MAX} in all"
    )]
    BadName { name: String },
    #[error("{amount} of {name:?} is out of range: give 1 to {RESOURCE_AMOUNT_MAX}")]
    BadAmount { name: String, amount: String },
    #[error("there are {count} resources: at most {RESOURCES_MAX}")]
    TooMany { count: usize },
    #[error("the resource {name:?} is given twice, or in two spellings: give each once")]
    Twice { name: String },
}

impl GenericResources {
    /// Reads texts such as `gpu=1`.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ResourceError> {
        let mut amounts = BTreeMap::new();
        for text in texts {
            let no_amount = || ResourceError::NoAmount { text: text.to_string() };
            let (name, amount) = text.split_once('=').ok_or_else(no_amount)?;
            let bad = || ResourceError::BadAmount { name: name.to_string(), amount: amount.to_string() };
            let value = amount.parse().map_err(|_| bad())?;
            if amounts.insert(name.to_string(), value).is_some() {
                return Err(ResourceError::Twice { name: name.to_string() });
            }
        }
        let resources = Self(amounts);
        resources.check().map(|()| resources)
    }

    /// Returns an error for names, amounts or a number of resources out of bounds.
    pub fn check(&self) -> Result<(), ResourceError> {
        let mut variables = BTreeSet::new();
        for (name, amount) in &self.0 {
            if !is_name(name) {
                return Err(ResourceError::BadName { name: name.clone() });
            }
            if !(1..=RESOURCE_AMOUNT_MAX).contains(amount) {
                let (name, amount) = (name.clone(), amount.to_string());
                return Err(ResourceError::BadAmount { name, amount });
            }
            if !variables.insert(variable(name)) {
                return Err(ResourceError::Twice { name: name.clone() });
            }
        }
        match self.0.len() {
            count if count > RESOURCES_MAX => Err(ResourceError::TooMany { count }),
            _ => Ok(()),
        }
    }

    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the amount of a resource; 0 if it is not there.
    pub fn amount(&self, name: &str) -> u32 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the names and amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Adds the amounts of others.
    pub fn add(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Returns whether it has all amounts that another one needs.
    pub fn has(&self, needs: &Self) -> bool {
        needs.iter().all(|(name, amount)| amount <= self.amount(name))
    }

    /// Returns the variables by which a program sees its amounts, as in `SAILFISH_RESOURCE_GPU`.
    pub fn variables(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|(name, amount)| (variable(name), amount.to_string()))
    }
}

impl std::fmt::Display for GenericResources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<String> = self.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        f.write_str(&texts.join(", "))
    }
}

impl FromIterator<(String, u32)> for GenericResources {
    fn from_iter<I: IntoIterator<Item = (String, u32)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

fn is_name(name: &str) -> bool {
    let is_rest = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.len() <= RESOURCE_NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(is_rest)
}

fn variable(name: &str) -> String {
    format!("{VARIABLE}{}", name.to_ascii_uppercase().replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::{GenericResources, RESOURCE_NAME_BYTES_MAX, ResourceError};

    fn parse(texts: &[&str]) -> Result<String, ResourceError> {
        GenericResources::parse(texts.iter().copied()).map(|resources| resources.to_string())
    }

    #[test]
    fn amounts_are_read_and_bounded() {
        assert_eq!(parse(&["gpu=2", "lic-1=1000000"]), Ok("gpu=2, lic-1=1000000".to_string()));
        assert_eq!(parse(&[]), Ok(String::new()));
        assert!(matches!(parse(&["gpu"]), Err(ResourceError::NoAmount { .. })));
        for amount in ["0", "1000001", "-1", "1.5", "", "99999999999"] {
            let refused = parse(&[&format!("gpu={amount}")]);
            assert!(matches!(refused, Err(ResourceError::BadAmount { .. })), "{amount}");
        }
        for name in ["", "g pu", "1gpu", "gpü", "-gpu", &"g".repeat(RESOURCE_NAME_BYTES_MAX + 1)] {
            let refused = parse(&[&format!("{name}=1")]);
            assert!(matches!(refused, Err(ResourceError::BadName { .. })), "{name}");
        }
        for twice in [["gpu=1", "gpu=2"], ["gpu=1", "GPU=1"], ["a-b=1", "a_b=1"]] {
            assert!(matches!(parse(&twice), Err(ResourceError::Twice { .. })), "{twice:?}");
        }
        let many: Vec<String> = (0..9).map(|index| format!("r{index}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(parse(&many), Err(ResourceError::TooMany { count: 9 }));
        assert!(parse(&many[1..]).is_ok());
    }

    #[test]
    fn programs_see_their_amounts() {
        let resources = GenericResources::parse(["big-gpu=2"]).unwrap();
        let variables: Vec<_> = resources.variables().collect();
        assert_eq!(variables, [("SAILFISH_RESOURCE_BIG_GPU".to_string(), "2".to_string())]);
    }

    #[test]
    fn sums_are_compared_with_nodes() {
        let of = |texts: &[&str]| GenericResources::parse(texts.iter().copied()).unwrap();
        let mut sum = of(&["gpu=1"]);
        sum.add(&of(&["gpu=1", "fpga=1"]));
        assert_eq!(sum, of(&["fpga=1", "gpu=2"]));
        assert!(of(&["fpga=1", "gpu=3", "tape=1"]).has(&sum));
        assert!(!of(&["gpu=3"]).has(&sum));
        assert!(!of(&["fpga=1", "gpu=1"]).has(&sum));
        assert!(GenericResources::default().has(&GenericResources::default()));
    }
}
