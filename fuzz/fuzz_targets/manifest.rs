//! A manifest, as the bytes are and with the right checksum around them.

#![no_main]

use fondaco_format::{Checksum, Manifest};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let Ok(manifest) = Manifest::from_bytes(bytes) else {
        return;
    };
    let files = 2 * manifest.chunks.len() + usize::from(manifest.dictionary.is_some());
    assert_eq!(manifest.files().count(), files);
    let _ = manifest.files_bytes();
    let again = Manifest::from_bytes(&manifest.to_bytes()).expect("what was written");
    assert_eq!(again, manifest);
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The checksum covers the inner value as it is written, without the blanks around it.
    let inner = bytes.trim_ascii();
    let mut sealed = b"{\"manifest\": ".to_vec();
    sealed.extend_from_slice(inner);
    sealed.extend_from_slice(format!(",\"checksum\": \"{}\"}}", Checksum::of(inner)).as_bytes());
    check(&sealed);
});
