//! The Java classes that have an equivalent in Sailfish.

use crate::error::StreamingError;

const PACKAGES: &[&str] = &[
    "org.apache.hadoop.mapred.",
    "org.apache.hadoop.mapred.lib.",
    "org.apache.hadoop.mapreduce.lib.input.",
    "org.apache.hadoop.mapreduce.lib.output.",
    "org.apache.hadoop.mapreduce.lib.partition.",
];

/// Returns whether a class is written by its full name or by its last part.
fn is(written: &str, class: &str) -> bool {
    written == class || PACKAGES.iter().any(|package| written.strip_prefix(package) == Some(class))
}

/// `-inputformat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputFormatClass {
    /// The mapper reads lines.
    #[default]
    Text,
    /// Lines split into key and value.
    KeyValueText,
    /// A number of lines per map task, each preceded by its position in the file.
    NLine,
}

impl InputFormatClass {
    pub(crate) fn parse(written: &str) -> Result<Self, StreamingError> {
        if is(written, "TextInputFormat") {
            Ok(Self::Text)
        } else if is(written, "KeyValueTextInputFormat") {
            Ok(Self::KeyValueText)
        } else if is(written, "NLineInputFormat") {
            Ok(Self::NLine)
        } else {
            let possible = "use TextInputFormat, KeyValueTextInputFormat or NLineInputFormat";
            Err(StreamingError::not_supported(format!("-inputformat {written}"), possible))
        }
    }
}

/// `-outputformat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputFormatClass {
    #[default]
    Text,
    Null,
}

impl OutputFormatClass {
    pub fn parse(written: &str) -> Result<Self, StreamingError> {
        if is(written, "TextOutputFormat") {
            Ok(Self::Text)
        } else if is(written, "NullOutputFormat") {
            Ok(Self::Null)
        } else {
            let possible = "use TextOutputFormat or NullOutputFormat";
            Err(StreamingError::not_supported(format!("-outputformat {written}"), possible))
        }
    }
}

/// `-partitioner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartitionerClass {
    Hash,
    KeyFieldBased,
}

impl PartitionerClass {
    pub fn parse(option: &str, written: &str) -> Result<Self, StreamingError> {
        if is(written, "HashPartitioner") {
            return Ok(Self::Hash);
        }
        if is(written, "KeyFieldBasedPartitioner") {
            return Ok(Self::KeyFieldBased);
        }
        let possible = match is(written, "TotalOrderPartitioner") {
            true => "`sailfish run --total-order` sorts across parts",
            false => "use HashPartitioner or KeyFieldBasedPartitioner",
        };
        Err(StreamingError::not_supported(format!("{option} {written}"), possible))
    }
}

/// Parses the comparator of keys: true for the one with options, false for plain bytes.
pub(crate) fn is_key_field_comparator(property: &str, written: &str) -> Result<bool, StreamingError> {
    if is(written, "KeyFieldBasedComparator") {
        return Ok(true);
    }
    if written == "org.apache.hadoop.io.Text$Comparator" {
        return Ok(false);
    }
    let possible = "use KeyFieldBasedComparator, or none: keys are then compared byte by byte";
    Err(StreamingError::not_supported(format!("{property}={written}"), possible))
}

/// Returns whether the text of `-mapper` is the identity class. Hadoop knows it only by its full name; any other class
/// is refused, and any other text is a command.
pub(crate) fn is_identity(option: &str, text: &str, class: &str) -> Result<bool, StreamingError> {
    let text = text.trim();
    if text.strip_prefix("org.apache.hadoop.mapred.lib.") == Some(class) {
        return Ok(true);
    }
    if text.starts_with("org.apache.hadoop.") && !text.contains([' ', '/']) {
        let possible = format!(
            "the only Java class is org.apache.hadoop.mapred.lib.{class}; give a command or a built-in \
             function"
        );
        return Err(StreamingError::not_supported(format!("{option} {text}"), possible));
    }
    Ok(false)
}

/// Parses the compression of output parts.
pub(crate) fn output_codec(property: &str, written: &str) -> Result<api::Compression, StreamingError> {
    match written.strip_prefix("org.apache.hadoop.io.compress.").unwrap_or(written) {
        "GzipCodec" => Ok(api::Compression::Gzip),
        "BZip2Codec" => Ok(api::Compression::Bzip2),
        "ZStandardCodec" => Ok(api::Compression::Zstd),
        _ => {
            let possible = "use GzipCodec, BZip2Codec or ZStandardCodec of org.apache.hadoop.io.compress";
            Err(StreamingError::not_supported(format!("{property}={written}"), possible))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{InputFormatClass, OutputFormatClass, PartitionerClass, is_identity, output_codec};

    #[test]
    fn classes_are_known_by_either_name() {
        for name in ["NLineInputFormat", "org.apache.hadoop.mapred.lib.NLineInputFormat"] {
            assert_eq!(InputFormatClass::parse(name), Ok(InputFormatClass::NLine));
        }
        let error = InputFormatClass::parse("SequenceFileInputFormat").unwrap_err().to_string();
        assert!(error.contains("SequenceFileInputFormat") && error.contains("KeyValueText"), "{error}");
        assert!(OutputFormatClass::parse("org.apache.hadoop.mapred.lib.NullOutputFormat").is_ok());
        assert!(OutputFormatClass::parse("org.apache.hadoop.mapred.SequenceFileOutputFormat").is_err());
        let partitioner = |name| PartitionerClass::parse("-partitioner", name);
        assert_eq!(partitioner("org.apache.hadoop.mapred.lib.HashPartitioner"), Ok(PartitionerClass::Hash));
        let error =
            partitioner("org.apache.hadoop.mapred.lib.TotalOrderPartitioner").unwrap_err().to_string();
        assert!(error.contains("--total-order"), "{error}");
        assert!(partitioner("com.example.Mine").unwrap_err().to_string().contains("com.example.Mine"));
        assert!(output_codec("p", "org.apache.hadoop.io.compress.SnappyCodec").is_err());
    }

    #[test]
    fn identity_classes_need_their_whole_name() {
        let check = |text: &str| is_identity("-mapper", text, "IdentityMapper");
        assert_eq!(check("org.apache.hadoop.mapred.lib.IdentityMapper"), Ok(true));
        assert_eq!(check("IdentityMapper"), Ok(false));
        assert_eq!(check("cat"), Ok(false));
        let error = check("org.apache.hadoop.mapred.lib.TokenCountMapper").unwrap_err().to_string();
        assert!(error.contains("TokenCountMapper"), "{error}");
    }
}
