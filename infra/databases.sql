-- The servers' databases, each with the one role that may use it; no role is a superuser. Run by a superuser:
--
--   PREFECT_DATABASE_PASSWORD=... MLFLOW_DATABASE_PASSWORD=... psql --file infra/databases.sql postgres
--
-- The compose file runs it with a new volume. Once more changes nothing but the passwords, which become those of the
-- environment; in a database that an older version filled as the superuser it gives the tables to the role.
\set ON_ERROR_STOP on
\getenv prefect_password PREFECT_DATABASE_PASSWORD
\getenv mlflow_password MLFLOW_DATABASE_PASSWORD
-- else a failed statement stands in the server's log, password and all
SET log_min_error_statement TO panic;

SELECT 'CREATE ROLE ' || role || ' LOGIN' FROM (VALUES ('prefect'), ('mlflow')) AS wanted (role)
WHERE role NOT IN (SELECT rolname FROM pg_roles)
\gexec
ALTER ROLE prefect LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'prefect_password';
ALTER ROLE mlflow LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'mlflow_password';

SELECT 'CREATE DATABASE ' || name FROM (VALUES ('prefect'), ('mlflow'), ('mlflow_auth')) AS wanted (name)
WHERE name NOT IN (SELECT datname FROM pg_database)
\gexec
ALTER DATABASE prefect OWNER TO prefect;
ALTER DATABASE mlflow OWNER TO mlflow;
ALTER DATABASE mlflow_auth OWNER TO mlflow;
REVOKE ALL ON DATABASE prefect, mlflow, mlflow_auth FROM PUBLIC;

-- what an older version's superuser made there: tables with their indices and sequences, views, types
SELECT $statement$
    SELECT format('ALTER %s %s OWNER TO %I', kind, name, pg_get_userbyid(datdba))
    FROM pg_database, (
        SELECT 'TABLE', oid::regclass::text FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
        UNION ALL
        SELECT 'TYPE', oid::regtype::text FROM pg_type
        WHERE typnamespace = 'public'::regnamespace AND typtype = 'e'
    ) AS made (kind, name)
    WHERE datname = current_database()
$statement$ AS handed_over
\gset
\connect prefect
:handed_over
\gexec
\connect mlflow
:handed_over
\gexec
\connect mlflow_auth
:handed_over
\gexec
