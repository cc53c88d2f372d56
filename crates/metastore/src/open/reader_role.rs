//! The role of PostgreSQL whose rights questions of the console have.

use crate::StoreError;
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;
use std::path::Path;

/// Makes the role where it is missing and lets it read the views. A user of the database who may make no roles can
/// still serve jobs: then the console says what is missing.
pub(crate) async fn reader_role(connection: &mut PgConnection, path: &Path) -> Result<(), StoreError> {
    // Servers that start at the same moment must not both make it: roles are shared by all databases.
    let statements = ["DO $$ BEGIN \
           IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'sailfish_reader') THEN \
             CREATE ROLE sailfish_reader NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT; \
           END IF; \
           IF NOT pg_has_role(current_user, 'sailfish_reader', 'MEMBER') THEN \
             EXECUTE format('GRANT sailfish_reader TO %I', current_user); \
           END IF; \
           GRANT USAGE ON SCHEMA console TO sailfish_reader; \
           GRANT SELECT ON ALL TABLES IN SCHEMA console TO sailfish_reader; \
         EXCEPTION WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL; \
         END $$"];
    for statement in statements {
        connection.execute(statement).await.map_err(|error| StoreError::from_driver(path, error))?;
    }
    Ok(())
}
