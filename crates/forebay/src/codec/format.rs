//! Formats: a value as bytes.

use crate::codec::CodecError;

#[cfg(any(feature = "serde-msgpack", feature = "serde-json", feature = "serde-postcard"))]
use serde::{Serialize, de::DeserializeOwned};

pub(super) const RAW: u8 = 0;
pub(super) const MESSAGE_PACK: u8 = 1;
pub(super) const JSON: u8 = 2;
pub(super) const POSTCARD: u8 = 3;

/// A value as bytes. Implemented by what this library brings; not meant for others.
pub trait Format<V> {
    /// Its number in what is written.
    const ID: u8;

    /// Appends a value.
    ///
    /// # Errors
    /// If the format cannot hold it.
    fn write(&self, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError>;

    /// Reads a value that was written in the format with this number.
    ///
    /// # Errors
    /// If it is none, or that format is not built in, or not one for this type.
    fn read(&self, id: u8, bytes: &[u8]) -> Result<V, CodecError>;
}

/// Values that are bytes already.
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
            MESSAGE_PACK | JSON | POSTCARD => Err(CodecError::format("bytes were expected")),
            _ => Err(CodecError::Unknown),
        }
    }
}

/// MessagePack with named fields: fields can be added and left out between versions of a type.
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

/// JSON: larger and slower, and read by people and by everything else.
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

/// postcard: no names, no types, as few bytes as can be. What was written of another type, or of
/// an earlier version of this one, is read as nonsense or not at all: give a cache another name
/// when its type changes. It bounds no recursion: not for types within themselves, where others
/// may write to the tier.
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

/// Whichever of the formats of serde it is.
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
            _ => Err(CodecError::format("there is more than the value")),
        },
        #[cfg(not(feature = "serde-postcard"))]
        POSTCARD => Err(CodecError::NotBuiltIn("serde-postcard")),
        RAW => Err(CodecError::format("raw bytes are no such value")),
        _ => Err(CodecError::Unknown),
    }
}
