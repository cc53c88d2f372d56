//! The built-in folds.
/// A built-in fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    Sum,
    Min,
    Max,
    Count,
    Unique,
    List,
}
impl Fold {
    /// All.
    pub const ALL: [Fold; 6] = [Fold::Sum, Fold::Min, Fold::Max, Fold::Count, Fold::Unique, Fold::List];
    /// The name after `builtin:`.
    pub fn name(self) -> &'static str {
        match self {
            Fold::Sum => "sum",
            Fold::Min => "min",
            Fold::Max => "max",
            Fold::Count => "count",
            Fold::Unique => "unique",
            Fold::List => "list",
        }
    }
    /// By name.
    pub fn by_name(name: &str) -> Option<Fold> {
        Self::ALL.into_iter().find(|each| each.name() == name)
    }
}
