//! The list of tables. A table of ours is a row with a name and a number, and a server table named after the number.
//! Dropping a table deletes its row, without waiting for readers. Numbers are never reused.

use mysql::prelude::Queryable;
use mysql::{Conn, Error};

use super::failure;

/// Longer keys do not fit into an index of InnoDB: see [`super::rows`].
pub(super) const HEAD_BYTES_MAX: usize = 2048;

/// The server table with the rows of one of our tables.
pub(super) fn rows_of(number: u64) -> String {
    format!("`fondaco_rows_{number}`")
}

/// Creates the list of tables if it does not exist, and deletes the rows of dropped tables.
pub(super) fn prepare(connection: &mut Conn) -> Result<(), Error> {
    connection.query_drop(
        "CREATE TABLE IF NOT EXISTS fondaco_tables (
             number BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
             name VARBINARY(64) NOT NULL UNIQUE
         ) ENGINE = InnoDB",
    )?;
    sweep(connection)
}

/// The number of a table; creates the table if it does not exist.
pub(super) fn open_table(connection: &mut Conn, name: &str) -> Result<u64, Error> {
    let find = "SELECT number FROM fondaco_tables WHERE name = ?";
    let number = match connection.exec_first(find, (name.as_bytes(),))? {
        Some(number) => number,
        None => {
            connection.exec_drop("INSERT INTO fondaco_tables (name) VALUES (?)", (name.as_bytes(),))?;
            connection.last_insert_id()
        }
    };
    make_rows(connection, number)?;
    Ok(number)
}

/// Restores the name and number of a table in a database that went back to a state without them.
pub(super) fn restore_table(connection: &mut Conn, name: &str, number: u64) -> Result<(), Error> {
    let restore = "REPLACE INTO fondaco_tables (number, name) VALUES (?, ?)";
    connection.exec_drop(restore, (number, name.as_bytes()))?;
    make_rows(connection, number)
}

fn make_rows(connection: &mut Conn, number: u64) -> Result<(), Error> {
    let rows = rows_of(number);
    connection.query_drop(format!(
        "CREATE TABLE IF NOT EXISTS {rows} (
             head VARBINARY({HEAD_BYTES_MAX}) NOT NULL,
             tail_hash VARBINARY(16) NOT NULL,
             tail MEDIUMBLOB NOT NULL,
             value LONGBLOB NOT NULL,
             PRIMARY KEY (head, tail_hash)
         ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
    ))
}

/// Deletes the name of a table, so that the table is no longer found.
pub(super) fn forget_table(connection: &mut Conn, name: &str) -> Result<(), Error> {
    connection.exec_drop("DELETE FROM fondaco_tables WHERE name = ?", (name.as_bytes(),))
}

/// Deletes the rows of tables without a name, except those that are still being read.
pub(super) fn sweep(connection: &mut Conn) -> Result<(), Error> {
    let nameless: Vec<String> = connection.query(
        "SELECT CONVERT(table_name USING utf8mb4) FROM information_schema.tables
         WHERE table_schema = DATABASE() AND table_name LIKE 'fondaco\\_rows\\_%'
         AND table_name NOT IN (SELECT CONCAT('fondaco_rows_', number) FROM fondaco_tables)",
    )?;
    for rows in nameless {
        match connection.query_drop(format!("DROP TABLE IF EXISTS `{rows}`")) {
            Err(error) if !failure::others_were_in_the_way(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The names of all tables, sorted.
pub(super) fn table_names(connection: &mut impl Queryable) -> Result<Vec<String>, Error> {
    let names: Vec<Vec<u8>> = connection.query("SELECT name FROM fondaco_tables ORDER BY name")?;
    // All names are ASCII: they were validated before they were stored.
    Ok(names
        .iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

/// The approximate number of rows of a table.
pub(super) fn approximate_len(connection: &mut impl Queryable, number: u64) -> Result<u64, Error> {
    let rows: Option<Option<u64>> = connection.exec_first(
        "SELECT table_rows FROM information_schema.tables
         WHERE table_schema = DATABASE() AND table_name = CONCAT('fondaco_rows_', ?)",
        (number,),
    )?;
    Ok(rows.flatten().unwrap_or(0))
}

/// The space that all tables use on the server's disk.
pub(super) fn disk_bytes(connection: &mut impl Queryable) -> Result<u64, Error> {
    let bytes: Option<Option<u64>> = connection.query_first(
        "SELECT CAST(SUM(data_length + index_length) AS UNSIGNED) FROM information_schema.tables
         WHERE table_schema = DATABASE()",
    )?;
    Ok(bytes.flatten().unwrap_or(0))
}
