//! Serialization formats of values.

use crate::codec::CodecError;

#[cfg(any(feature = "serde-msgpack", feature = "serde-json", feature = "serde-postcard"))]
use serde::{Serialize, de::DeserializeOwned};

pub(super) const RAW: u8 = 0;
pub(super) const MESSAGE_PACK: u8 = 1;
pub(super) const JSON: u8 = 2;
pub(super) const POSTCARD: u8 = 3;

/// A serialization format for values of type `V`, for [`Codec`](crate::codec::Codec). Use the
/// formats of this library: it assigns the ids.
pub trait Format<V> {
    /// Id of the format, in the header of every encoded value.
    const ID: u8;

    /// Appends the encoded value to `out`.
    ///
    /// # Errors
    /// The format cannot represent the value.
    fn write(&self, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError>;

    /// Decodes a value that was encoded in the format with this id. It may be another format: serde
    /// formats read each other, if their Cargo features are enabled.
    ///
    /// # Errors
    /// The bytes are not a value of this type, or the format with this id is unknown, not built in,
    /// or not readable by this one.
    fn read(&self, id: u8, bytes: &[u8]) -> Result<V, CodecError>;
}

/// Format for values that are byte strings: the bytes are stored unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl<V: AsRef<[u8]> + From<Vec<u8>>> Format<V> for Raw {
    const ID: u8 = RAW;

    fn write(&self, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value.as_ref());
        Ok(())
    }

    fn read(&self, id: u8, bytes: &[u8]) -> Result<V, CodecError> {
        match id {
            RAW => Ok(bytes.to_vec().into()),
            MESSAGE_PACK | JSON | POSTCARD => Err(CodecError::format(
                "the codec expects raw bytes, and the value has a serde format",
            )),
            _ => Err(CodecError::Unknown),
        }
    }
}

/// MessagePack format with named fields: versions of a type can add and omit fields.
#[cfg(feature = "serde-msgpack")]
#[derive(Clone, Copy, Debug, Default)]
pub struct MessagePack;

#[cfg(feature = "serde-msgpack")]
impl<V: Serialize + DeserializeOwned> Format<V> for MessagePack {
    const ID: u8 = MESSAGE_PACK;

    fn write(&self, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        rmp_serde::encode::write_named(out, value).map_err(CodecError::format)
    }

    fn read(&self, id: u8, bytes: &[u8]) -> Result<V, CodecError> {
        read(id, bytes)
    }
}

/// JSON format: larger and slower than MessagePack. The encoded value is text, which helps in
/// debugging, after the header of the codec and inside of the tier's own record.
#[cfg(feature = "serde-json")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

#[cfg(feature = "serde-json")]
impl<V: Serialize + DeserializeOwned> Format<V> for Json {
    const ID: u8 = JSON;

    fn write(&self, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        serde_json::to_writer(out, value).map_err(CodecError::format)
    }

    fn read(&self, id: u8, bytes: &[u8]) -> Result<V, CodecError> {
        read(id, bytes)
    }
}

/// postcard format: the smallest, without names and types of fields. Bytes of another type, or of
/// another version of the type, fail to decode or decode to a wrong value: change the name of the
/// cache when its type changes. Recursion is not bounded: do not use it for recursive types if
/// other programs can write to the tier.
#[cfg(feature = "serde-postcard")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Postcard;

#[cfg(feature = "serde-postcard")]
impl<V: Serialize + DeserializeOwned> Format<V> for Postcard {
    const ID: u8 = POSTCARD;

    fn write(&self, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        postcard::to_io(value, out).map(drop).map_err(CodecError::format)
    }

    fn read(&self, id: u8, bytes: &[u8]) -> Result<V, CodecError> {
        read(id, bytes)
    }
}

/// Reads a value in the serde format with this id.
#[cfg(any(feature = "serde-msgpack", feature = "serde-json", feature = "serde-postcard"))]
fn read<V: DeserializeOwned>(id: u8, bytes: &[u8]) -> Result<V, CodecError> {
    match id {
        #[cfg(feature = "serde-msgpack")]
        MESSAGE_PACK => rmp_serde::from_slice(bytes).map_err(CodecError::format),
        #[cfg(not(feature = "serde-msgpack"))]
        MESSAGE_PACK => Err(CodecError::NotBuiltIn("serde-msgpack")),
        #[cfg(feature = "serde-json")]
        JSON => serde_json::from_slice(bytes).map_err(CodecError::format),
        #[cfg(not(feature = "serde-json"))]
        JSON => Err(CodecError::NotBuiltIn("serde-json")),
        #[cfg(feature = "serde-postcard")]
        POSTCARD => match postcard::take_from_bytes(bytes).map_err(CodecError::format)? {
            (value, []) => Ok(value),
            _ => Err(CodecError::format("extra bytes follow the encoded value")),
        },
        #[cfg(not(feature = "serde-postcard"))]
        POSTCARD => Err(CodecError::NotBuiltIn("serde-postcard")),
        RAW => {
            Err(CodecError::format("the codec expects a serde format, and the value is raw bytes"))
        }
        _ => Err(CodecError::Unknown),
    }
}
