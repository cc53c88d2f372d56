/// Gives an enum its words: each variant is one word in the store, in messages and for users.
#[macro_export]
macro_rules! words {
    ($name:ident: $($variant:ident = $word:literal),* $(,)?) => {
        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the word of the variant.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }

            /// Returns the variant of a word; None for an unknown one.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|each| each.word() == word)
            }
        }
    };
}
