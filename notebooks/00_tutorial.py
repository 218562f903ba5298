# %% [markdown]
# # Tutorial: back up, query, restore
# Run the cells from top to bottom. They make a small folder of files, back it up twice, query the catalog with SQL and
# restore the first state. All of it stays in the folder `lakebackup-tutorial` beside this notebook: no server is needed.

# %%
import shutil
from datetime import UTC, datetime
from pathlib import Path

import lakebackup

# %load_ext lakebackup

work = Path("lakebackup-tutorial")
shutil.rmtree(work, ignore_errors=True)
(work / "shop").mkdir(parents=True)
for day in (1, 2, 3):
    lines = [f"{day * 100 + number},{number * 7}" for number in range(20)]
    (work / "shop" / f"orders-{day}.csv").write_text("order,amount\n" + "\n".join(lines))

# %% [markdown]
# ## Back up
# A snapshot backup copies the files of a folder. `--source` names what is backed up, `--repo` where backups are kept.

# %%
# !lakebackup backup snapshot {work}/shop --source shop --repo {work}/backups --runner local

# %% [markdown]
# One file changes and another is new. The next backup copies these two, and refers to what it has of the others.

# %%
before = datetime.now(UTC)
(work / "shop" / "orders-3.csv").write_text("order,amount\n300,0\n")
(work / "shop" / "orders-4.csv").write_text("order,amount\n400,7\n")
# !lakebackup backup snapshot {work}/shop --source shop --repo {work}/backups --runner local

# %% [markdown]
# ## Query
# `connect` opens the backups. A `%%sql` cell asks the connection `con`; `SHOW TABLES` lists what there is to ask.

# %%
con = lakebackup.connect(work / "backups")

# %% language="sql"
# SELECT number, kind, files, bytes, end_time
# FROM backups
# ORDER BY number

# %% [markdown]
# `snapshot_files` has every file with the first backup that has it. The second backup copied the contents that the first
# does not have. A variable of the notebook is a parameter, `:number` here. `second <<` keeps the answer in a variable
# instead of showing it.

# %%
number = 2

# %% magic_args="second <<" language="sql"
# SELECT name, bytes, added_in, gone_in
# FROM snapshot_files
# WHERE added_in = :number
#   AND sha256 NOT IN (SELECT sha256 FROM snapshot_files WHERE added_in < :number)
# ORDER BY name

# %% [markdown]
# An answer prints as a table. `.df()` is a pandas DataFrame, `.arrow()` a pyarrow table.

# %%
copied = second.df()
copied["bytes"].sum()

# %% [markdown]
# ## Look back
# With `as_of` the catalog is as it was at a past time: here, before the second backup.

# %%
then = lakebackup.connect(work / "backups", as_of=before)
then.backups()

# %% [markdown]
# ## Restore
# The restore of the first backup brings three files, with `orders-3.csv` as it was.

# %%
(first,) = then.sql("SELECT backup_id FROM backups").rows()
backup_id = first["backup_id"]
# !lakebackup restore snapshot --repo {work}/backups --backup {backup_id} --to {work}/restored

# %%
restored = sorted(path.name for path in (work / "restored").rglob("*.csv"))
restored

# %% [markdown]
# The other notebooks here do this with your own backups: set `LAKEBACKUP_REPO` to where they are.
