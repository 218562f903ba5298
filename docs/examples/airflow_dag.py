"""Backups that are due, a daily check and a weekly prune.

`lakebackup` is on the PATH of the workers, and its settings are in the file that LAKEBACKUP_CONFIG names. A task
fails when its command ends with an error, and so does its run of the DAG: no other task follows it.
"""

from datetime import datetime, timedelta, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

ENVIRONMENT = {"LAKEBACKUP_CONFIG": "/etc/lakebackup.toml"}
START = datetime(2026, 1, 1, tzinfo=timezone.utc)

with DAG("lakebackup_due", schedule="*/5 * * * *", start_date=START, catchup=False, max_active_runs=1):
    # Exit code 8: another run is taking these backups, so this one is skipped.
    BashOperator(
        task_id="due",
        bash_command="lakebackup due --run --json",
        env=ENVIRONMENT,
        append_env=True,
        skip_on_exit_code=8,
    )

with DAG("lakebackup_verify", schedule="30 4 * * *", start_date=START, catchup=False, max_active_runs=1):
    BashOperator(
        task_id="verify",
        bash_command="lakebackup verify --json",
        env=ENVIRONMENT,
        append_env=True,
    )

with DAG("lakebackup_prune", schedule="0 5 * * sun", start_date=START, catchup=False, max_active_runs=1):
    # Another run may be in progress: try again later.
    BashOperator(
        task_id="prune",
        bash_command="lakebackup prune --source prod --delete --json",
        env=ENVIRONMENT,
        append_env=True,
        retries=3,
        retry_delay=timedelta(minutes=10),
    )
