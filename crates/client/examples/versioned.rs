//! Writes, reads and changes a key of a versioned store: `cargo run --example versioned -- 127.0.0.1:6500 STORE`.
//!
//! It demonstrates the library, and measures nothing.

use std::time::Duration;

use fondaco_client::{Client, PutOptions};
use fondaco_model::StoreName;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(seed), Some(store)) = (arguments.next(), arguments.next()) else {
        return Err("give a node as host:port, and a versioned store".into());
    };
    let store: StoreName = store.parse()?;
    let client = Client::builder().seeds([seed]).connect().await?;

    // A value with a time to live of an hour.
    let options = PutOptions {
        ttl: Some(Duration::from_secs(3600)),
        ..PutOptions::default()
    };
    let first = client.put(&store, b"greeting", "hello", &options).await?;
    println!("written, with the context {:02x?}", first.to_bytes());

    // Two writers with the same context: both values stay, until a write replaces both.
    let over = |context| PutOptions {
        context: Some(context),
        ..PutOptions::default()
    };
    client.put(&store, b"greeting", "ciao", &over(first.clone())).await?;
    client.put(&store, b"greeting", "salve", &over(first)).await?;
    let siblings = client.get_siblings(&store, b"greeting").await?;
    println!("{} values: {:?}", siblings.values.len(), siblings.values);
    client
        .put(&store, b"greeting", "ciao, salve", &over(siblings.context))
        .await?;

    // Read, change, and write if nothing was written meanwhile; otherwise try again.
    let changed = client
        .update(&store, b"greeting", |value| {
            let mut value = value.unwrap_or_default().to_vec();
            value.push(b'!');
            Some(value)
        })
        .await?;
    println!("changed to {changed:?}");
    client.delete(&store, b"greeting", &PutOptions::default()).await?;
    println!("and {:?} after the deletion", client.get(&store, b"greeting").await?);
    Ok(())
}
